-- Raises QF400 if the arguments of a dispatcher's call are invalid. Returns true, so that a declaration can call it.
create or replace function queues.check_dispatch(dispatcher_id text, max_events integer, lease interval)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  _problem := case
    when dispatcher_id is null or dispatcher_id = '' or octet_length(dispatcher_id) > 200
      then 'dispatcher_id must be between 1 and 200 bytes long'
    when max_events is null or max_events not between 1 and 10000 then 'max_events must be between 1 and 10000'
    when lease is null or lease not between interval '1 second' and interval '1 day'
      then 'lease must be between 1 second and 1 day'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  return true;
end
$$;

comment on function queues.check_dispatch(text, integer, interval) is
  'Raises QF400 if the arguments of a dispatcher''s call are invalid.';
