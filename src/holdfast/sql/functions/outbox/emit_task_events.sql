-- Emits events for tasks that have just ended or will be retried, if a subscription matches. Reads the rows that the
-- same transaction has written.
-- Internal: called by notify_waiters if there is a subscription to events of the engine.
create or replace function queues.emit_task_events(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _wanted text[];
  _batch queues.new_event[];
begin
  select array_agg(known.event_type) into _wanted from unnest(queues.engine_event_types()) known(event_type)
  where exists (
    select from queues.subscription s where s.engine_events
      and queues.is_subscribed(s.event_patterns, '{}', known.event_type, null));
  if _wanted is null then
    return;
  end if;

  select array_agg(row(queues.new_task_id(), fact.event_type, t.task_id::text, t.task_id::text, null, t.task_id, t.type,
      case when t.metadata ->> 'traceparent' ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
        then t.metadata ->> 'traceparent' end,
      jsonb_strip_nulls(jsonb_build_object('task_id', t.task_id, 'type', t.type, 'queue', t.queue,
        'status', fact.status, 'attempt', fact.attempt, 'max_attempts', t.max_attempts,
        'idempotency_key', t.idempotency_key, 'worker_id', fact.worker_id,
        'created_at', t.created_at, 'started_at', fact.started_at, 'finished_at', fact.finished_at,
        'retry_at', fact.retry_at, 'reason', left(fact.reason, 2000),
        'error', case when fact.kind is not null then jsonb_build_object('kind', fact.kind,
          'message', left(fact.message, 2000)) end)), t.namespace
    )::queues.new_event order by given.n, fact.rank) into _batch
  from unnest(task_ids) with ordinality given(task_id, n)
  cross join lateral (select t.* from queues.task t where t.task_id = given.task_id offset 0) t
  cross join lateral (
    select v.event_type, v.rank, o.status, o.attempt, o.worker_id, o.started_at, o.finished_at,
      null::timestamptz as retry_at, o.reason, e.kind, e.message
    from queues.outcome o
    left join lateral (
      select e.kind, e.message from queues.error e
      where o.status <> 'succeeded' and e.task_id = o.task_id and e.occurred_at = o.finished_at
        and e.step is null
      order by e.error_id desc limit 1) e on true
    cross join lateral (values (1, case when e.kind = 'no_handler_registered' then 'task.no_handler' end),
      (2, 'task.' || o.status))
      v(rank, event_type)
    where o.task_id = given.task_id
    union all
    -- The times match if this error, and not an older one, made the task ready again.
    select 'task.retrying', 1, 'retrying', e.attempt, e.worker_id, e.started_at, null, e.retry_at, null,
      e.kind, e.message
    from queues.ready r
    cross join lateral (
      select e.* from queues.error e where e.task_id = r.task_id and e.step is null order by e.error_id desc limit 1) e
    where r.task_id = given.task_id and r.run_at = e.retry_at and 'task.retrying' = any (_wanted)) fact
  where fact.event_type = any (_wanted);

  if _batch is not null then
    perform queues.record_events(_batch, _now, keep => false);
  end if;
end
$$;

comment on function queues.emit_task_events(uuid[]) is
  'Emits events for tasks that have just ended or will be retried, if a subscription matches.';
