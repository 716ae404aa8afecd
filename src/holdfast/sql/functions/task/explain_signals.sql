-- Says how to send the signals that a suspended run waits for, at most three. Null if it waits for none.
-- Internal: called by explain.
create or replace function queues.explain_signals(task_id uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('Send it with: holdfast runs signal %s %s JSON', w.task_id, w.signal), e'\n'
    order by w.until, w.name)
  from (
    select w.* from queues.wait w where w.task_id = explain_signals.task_id and w.signal is not null
    order by w.until, w.name limit 3) w
$$;

comment on function queues.explain_signals(uuid) is 'Says how to send the signals that a suspended run waits for.';
