-- Settles results of every kind: to an outcome, to ready, or parked if the task was deleted while it ran. Returns the
-- accepted results and their positions.
-- Internal: called by finish. Locks: lease rows, without waiting.
create or replace function queues.settle_mixed(
  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _parked uuid[];
  _awaited uuid[];
  _dead uuid[];
  _unsent uuid[];
  _lost uuid[];
  _suspended integer[];
  _snoozed uuid[];
  _continued jsonb;
  _left uuid[];
begin
  with given as materialized (
    select r.n::integer as n, r.task_id, r.token, queues.storable(r.result) as result, r.run_at, r.started_at, r.steps,
      r.payload, r.ends_at,
      case when refused.why is null then r.status else 'failed' end as status,
      case when refused.why is null then queues.storable(r.error, 65536)
        else jsonb_build_object('kind', 'invalid_arguments', 'message', refused.why) end as error
    from rows from (jsonb_to_recordset(results) as (
        task_id uuid, token bigint, status text, result jsonb, error jsonb, run_at timestamptz, started_at timestamptz,
        steps jsonb, payload jsonb, ends_at timestamptz))
      with ordinality r(task_id, token, status, result, error, run_at, started_at, steps, payload, ends_at, n)
    cross join lateral (
      select case when r.status = 'continue' then queues.why_not_continue(r.payload) end as why) refused
    order by r.task_id),
  free as materialized (
    select g.* from given g
    cross join lateral (
      select from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = settle_mixed.worker_id
      for update skip locked) l),
  freed as (
    delete from queues.lease l using free g
    where l.task_id = any (array(select task_id from free)) and l.task_id = g.task_id
      and g.status in ('succeeded', 'failed', 'cancelled', 'retry', 'snooze', 'suspend', 'continue')
    returning l.task_id, l.token, l.claimed_at, l.lane_id, l.attempt, l.deleted, l.awaited, l.generation, g.n, g.status,
      g.result, g.error, g.steps, g.payload,
      coalesce(l.started_at, greatest(l.claimed_at,
        least(coalesce(g.started_at, l.claimed_at), settle_mixed.now))) as started_at,
      -- A task with a deadline is due at the latest then, so that it ends. The function ignores a null.
      least(case when g.run_at > settle_mixed.now and g.run_at < settle_mixed.now + interval '100 years' then g.run_at
        when g.run_at is null and g.status = 'retry' then settle_mixed.now + queues.backoff(l.attempt)
        else settle_mixed.now end, g.ends_at) as run_at),
  settled as materialized (
    select f.*, case f.status when 'retry' then case when t.used >= t.max_attempts then 'dead_letter' end
      when 'snooze' then null when 'suspend' then null when 'continue' then null else f.status end as ending,
      -- A snooze gives the attempt back. A run that is suspended or goes on has come as far as it could.
      case f.status when 'snooze' then f.attempt - 1 when 'suspend' then 0 when 'continue' then 0 else t.used
        end as used
    from freed f
    left join lateral (
      select t.max_attempts, queues.attempts_used(f.task_id, f.token, f.attempt, f.generation, f.steps) as used
      from queues.task t where t.task_id = f.task_id and f.status = 'retry' offset 0) t on true),
  ended as (
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id,
      reason, result)
    select s.task_id, s.token, s.claimed_at, s.started_at, settle_mixed.now, s.attempt, s.ending,
      settle_mixed.worker_id,
      case when s.ending <> 'succeeded' then queues.error_message(s.error, null) end, s.result
    from settled s where s.ending is not null),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, s.run_at, s.lane_id, s.used
    from settled s where s.ending is null),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
      message, worker_id, detail, generation)
    select s.task_id, s.token, s.claimed_at, s.started_at, settle_mixed.now,
      case when s.ending is null then s.run_at end, s.attempt, false,
      queues.error_kind(s.error, 'handler_error'),
      queues.error_message(s.error, 'no message'), settle_mixed.worker_id, s.error, coalesce(s.generation, 1)
    from settled s where s.status in ('retry', 'failed') or s.status = 'cancelled' and s.error is not null),
  snoozed as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select s.task_id, case s.status when 'snooze' then 'snoozed' when 'suspend' then 'suspended' else 'continued' end,
      settle_mixed.now, s.token, s.attempt,
      settle_mixed.worker_id, session_user, queues.error_message(s.error, null),
      jsonb_build_object('claimed_at', s.claimed_at, 'started_at', s.started_at)
        || case s.status when 'continue' then jsonb_build_object('generation', coalesce(s.generation, 1) + 1)
          else jsonb_build_object('run_at', s.run_at) end
        || case when s.error is null then '{}' else jsonb_build_object('kind', queues.error_kind(s.error, null)) end
    from settled s where s.status in ('snooze', 'suspend', 'continue'))
  select array_agg(s.task_id order by s.n), array_agg(s.n order by s.n),
    array_agg(s.task_id) filter (where s.ending is null and s.deleted),
    array_agg(s.task_id) filter (where s.awaited),
    array_agg(s.task_id) filter (where s.ending = 'dead_letter' and s.error -> 'sent' is distinct from 'false'),
    array_agg(s.task_id) filter (where s.ending = 'dead_letter' and s.error -> 'sent' = 'false'),
    array_agg(s.task_id) filter (where s.ending <> 'succeeded'),
    array_agg(s.n) filter (where s.status = 'suspend'),
    array_agg(s.task_id) filter (where s.status = 'snooze' and s.used = 0),
    jsonb_agg(jsonb_build_object('task_id', s.task_id, 'payload', s.payload))
      filter (where s.status = 'continue'),
    array(select distinct on (s.lane_id) s.task_id from settled s
      where s.status = 'snooze'
        and s.error ->> 'kind' in ('no_handler_registered', 'executor_not_available', 'executor_failed')
        and s.run_at <= settle_mixed.now + interval '6 seconds')
  into accepted, places, _parked, _awaited, _dead, _unsent, _lost, _suspended, _snoozed, _continued, _left
  from settled s;

  if jsonb_path_exists(results, '$[*].steps') then
    perform queues.insert_steps(results, places, now);
  end if;
  delete from queues.wait w
  where w.task_id = any (array(select o.task_id from queues.outcome o where o.task_id = any (accepted)));
  if _lost is not null then
    perform queues.end_waits(_lost);
  end if;
  if _continued is not null then
    perform queues.begin_generations(_continued, now);
  end if;
  if _suspended is not null then
    perform queues.write_waits(results, _suspended, now);
  end if;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
  if _snoozed is not null then
    perform queues.cancel_replaced(_snoozed);
  end if;
  -- The worker has left these to others, which learn now when they are due.
  perform queues.wake_for(l.task_id) from unnest(_left) l(task_id);
  if _dead is not null then
    perform queues.call_error_handlers(_dead, 'outcome_unknown', 'its attempts are used up, and none came to an end',
      false, true, now);
  end if;
  if _unsent is not null then  -- the worker knows that the provider was not called
    perform queues.call_error_handlers(_unsent, null, null, false, false, now);
  end if;
end
$$;

comment on function queues.settle_mixed(text, jsonb, timestamptz) is
  'Settles results of every kind: to an outcome, to ready, or parked if the task was deleted while it ran.';
