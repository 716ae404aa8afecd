-- Refuses a status that retention does not know.
create or replace function queues.check_retention(status text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if status is null or status not in (
      'succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted', 'history', 'messages', 'steps') then
    raise exception using errcode = 'QF400',
      message = format('retention has no status %s', coalesce(to_json(status)::text, 'null')),
      hint = 'Allowed: succeeded, failed, dead_letter, cancelled, deleted, history, messages, steps.';
  end if;
end
$$;

comment on function queues.check_retention(text) is 'Refuses a status that retention does not know.';
