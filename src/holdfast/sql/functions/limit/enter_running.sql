-- Inserts missing slots for the running tasks of these lanes, for their current limits.
-- Internal: called when limits change.
create or replace function queues.enter_running(lanes bigint[], now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.slot (subject, name, namespace, concurrency_key, task_id, token)
  select g.subject, g.name, g.namespace, g.concurrency_key, held.task_id, held.token
  from queues.lease held join queues.gates_of(lanes, enter_running.now) g on g.lane_id = held.lane_id
  where g.max_running is not null
    and not exists (
      select from queues.slot s where s.subject = g.subject and s.name = g.name and s.namespace = g.namespace and s.concurrency_key = g.concurrency_key
        and s.task_id = held.task_id and s.token = held.token)
  -- In a fixed order, because two sessions that insert the same slots wait for each other.
  order by g.subject, g.name, g.namespace, g.concurrency_key, held.task_id
  on conflict do nothing
$$;

comment on function queues.enter_running(bigint[], timestamptz) is
  'Inserts missing slots for the running tasks of these lanes, for their current limits.';
