-- Refuses a name of a namespace that is empty, too long or has more than one line.
create or replace function queues.check_namespace(namespace text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if namespace is null or octet_length(namespace) not between 1 and 500
    or namespace ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
  then
    raise exception using errcode = 'QF400', message = 'namespace must be 1 to 500 bytes on one line';
  end if;
end
$$;

comment on function queues.check_namespace(text) is
  'Refuses a name of a namespace that is empty, too long or has more than one line.';
