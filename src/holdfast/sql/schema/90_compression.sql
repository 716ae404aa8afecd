-- lz4 compresses documents several times faster than the default method. Not every server is built with it.
do $install$
begin
  if (select 'lz4' = any (s.enumvals) from pg_catalog.pg_settings s where s.name = 'default_toast_compression') then
    alter table queues.task alter column payload set compression lz4;
    alter table queues.outcome alter column result set compression lz4;
    alter table queues.error alter column message set compression lz4, alter column detail set compression lz4;
  end if;
end
$install$;
