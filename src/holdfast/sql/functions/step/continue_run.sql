-- Begins the next run of a task that ends by ctx.continue_as, with other arguments. It takes over the idempotency
-- key, the signals that no step has taken, and what is left of its deadline.
-- Internal: called by finish, which holds the lease and has ended the task.
create or replace function queues.continue_run(task_id uuid, next_id uuid, payload jsonb, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
    namespace,
    idempotency_key, timeout, lease, payload, metadata, concurrency_key, deadline)
  select continue_run.next_id, continue_run.now, continue_run.now, t.priority, t.max_attempts, t.type, t.queue,
    t.executor, t.enqueued_by, t.namespace,
    t.idempotency_key, t.timeout, t.lease, continue_run.payload,
    coalesce(t.metadata, '{}') || jsonb_build_object('continues', t.task_id), t.concurrency_key,
    case when t.deadline is not null then
      greatest(queues.end_of_life(t.task_id, t.created_at, t.deadline) - continue_run.now, interval '1 millisecond') end
  from queues.task t where t.task_id = continue_run.task_id;
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, t.run_at, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
  from queues.task t where t.task_id = continue_run.next_id;
  update queues.task_key k set task_id = continue_run.next_id
  from queues.task t
  where t.task_id = continue_run.task_id and k.type = t.type and k.idempotency_key = t.idempotency_key
    and k.namespace = t.namespace
    and k.task_id = t.task_id;
  insert into queues.signal (task_id, sent_at, name, key, sent_by, payload)
  select continue_run.next_id, s.sent_at, s.name, s.key, s.sent_by, s.payload from queues.signal s
  where s.task_id = continue_run.task_id and (
    select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
  order by s.signal_id;
  insert into queues.continuation (task_id, next_id, first_id) values (task_id, next_id, coalesce((
    select c.first_id from queues.continuation c where c.next_id = continue_run.task_id), task_id));
  perform queues.wake_for(next_id);
end
$$;

comment on function queues.continue_run(uuid, uuid, jsonb, timestamptz) is
  'Begins the next run of a task that ends by ctx.continue_as, with other arguments.';
