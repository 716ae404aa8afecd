-- The status of one task, for messages.
create or replace function queues.status_now(task_id uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), queues.clock())
  from queues.task t
  left join queues.ready r on r.task_id = t.task_id
  left join queues.lease l on l.task_id = t.task_id
  left join queues.outcome o on o.task_id = t.task_id
  left join queues.deletion d on d.task_id = t.task_id
  where t.task_id = status_now.task_id
$$;

comment on function queues.status_now(uuid) is 'The status of one task, for messages.';
