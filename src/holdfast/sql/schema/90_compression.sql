-- lz4 compresses documents several times faster than the default method. Not every server is built with it. Without it,
-- payloads are stored as they are: to compress one takes longer than to write it, and it is kept for a short time only.

do $install$
begin
  if (select 'lz4' = any (s.enumvals) from pg_catalog.pg_settings s where s.name = 'default_toast_compression') then
    alter table queues.task alter column payload set compression lz4;
    alter table queues.outcome alter column result set compression lz4;
    alter table queues.error alter column message set compression lz4, alter column detail set compression lz4;
  else
    alter table queues.task alter column payload set storage external;
  end if;
end
$install$;
