-- Returns what happened to a run in order, without values: attempts and acts, steps, failed tries, signals, what it
-- waits for, its deadline, and the tasks that it has started. Steps, tries and children are those of the current
-- generation, and the event continued names each generation that began. Children belong to the step of their name. Of
-- each kind, it returns the last 1,000; of the children, the first 1,000 of all steps.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.run_timeline(task_id uuid)
returns table (
  happened text, name text, started_at timestamptz, ended_at timestamptz, attempt integer, tries integer,
    worker_id text,
  actor text, reason text, related_id uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _generation constant integer := queues.current_generation(task_id);
begin
  if not exists (select from queues.task_status t where t.task_id = run_timeline.task_id) then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
  return query
  select t.happened, t.name, t.started_at, t.ended_at, t.attempt, t.tries, t.worker_id, t.actor, t.reason, t.related_id
  from (
    select e.event_type as happened,
      case when e.event_type = 'continued' then 'generation ' || (e.data ->> 'generation') end as name,
      e.occurred_at as started_at, e.occurred_at as ended_at,
      e.attempt,
      null::integer as tries, e.worker_id, e.actor, e.reason, null::uuid as related_id, 0 as rank,
      array_position(array['created', 'claimed', 'started'], e.event_type) as number
    from queues.task_events_of(array[run_timeline.task_id]) e
    union all
    select queues.step_kind(s.kind), s.name, s.ended_at - s.took_ms * interval '1 millisecond', coalesce(s.until,
      s.ended_at), null,
      s.tries, null, null, case when s.error is not null then queues.error_message(s.error, 'failed') end, null, 2,
        s.number
    from (
      select s.* from queues.step s
      where s.task_id = run_timeline.task_id and s.generation = _generation
      order by s.number desc limit 1000) s
    union all
    select 'try', y.step, y.occurred_at, y.retry_at, null, y.step_try, null, null, y.message, null, 1, 0
    from (
      select y.* from queues.error y
      where y.task_id = run_timeline.task_id and y.generation = _generation and y.step is not null
      order by y.error_id desc limit 1000) y
    union all
    select 'signalled', s.name, s.sent_at, p.ended_at, null, null, null, s.sent_by, s.key, null, 1, 0
    from (
      select s.* from queues.signal s where s.task_id = run_timeline.task_id order by s.signal_id desc limit 1000) s
    left join lateral (
      select p.ended_at from queues.step p
      where p.signal_id = s.signal_id and p.signal_id is not null limit 1) p on true
    union all
    select 'waits', w.name, w.until, w.until, null, null, null, null,
      case when w.signal is not null then 'signal ' || w.signal when w.on_task is not null then 'task ' || w.on_task
        else 'time' end,
      w.on_task, 3, 0
    from queues.wait w join queues.ready r on r.task_id = w.task_id and r.attempt = 0
      where w.task_id = run_timeline.task_id
    union all
    select 'deadline', null, ends.at, ends.at, null, null, null, null, null, null, 4, 0
    from queues.task k
    cross join lateral (select queues.end_of_life(k.task_id, k.created_at, k.deadline) as at) ends
    where k.task_id = run_timeline.task_id and k.deadline is not null
      and not exists (select from queues.outcome o where o.task_id = k.task_id)
    union all
    select 'child', c.step, k.created_at, o.finished_at, null, null, o.worker_id, null, o.status, c.child_id, 2,
      c.number
    from (
      select c.* from queues.child c
      where c.parent_id = run_timeline.task_id and (c.generation = _generation or c.generation = 1 and c.step = '')
      order by c.step, c.number limit 1000) c
    left join lateral (select k.created_at from queues.task k where k.task_id = c.child_id offset 0) k on true
    left join lateral (
      select o.finished_at, o.worker_id, o.status from queues.outcome o
      where o.task_id = c.child_id offset 0) o on true) t
  order by t.started_at, t.rank, t.number, t.name;
end
$$;

comment on function queues.run_timeline(uuid) is
  'Returns what happened to a run in order, without values: attempts, steps, tries, signals, waits and children.';
