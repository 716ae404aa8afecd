-- Returns the history of the tasks with these ids, that of each task in order: of each, the last max_events events
-- before the given time, and those of the same instant as the first of them. The time of the first event is where the
-- page before it ends. Reads about max_events rows of a task however many it has; with before, also the newer ones.
-- Unlike the view, a front asks only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.task_events_of(
  task_ids uuid[], max_events integer default 1000, before timestamptz default null)
returns setof queues.task_event
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  -- Acts that were written at the same time may have ids in another order than their times.
  _most constant integer := max_events + 100;
  _before constant timestamptz := coalesce(before, 'infinity');
  _task_id uuid;
  _act_id bigint;
  _error_id bigint;
begin
  if max_events is null or max_events not between 1 and 1000 then
    raise exception using errcode = 'QF400',
      message = format('max_events %s is not between 1 and 1000', coalesce(max_events::text, 'null')),
      hint = 'For older events, call it again with before.';
  end if;
  for _task_id in
    select t.task_id from queues.task t
    where t.task_id = any (task_ids) and (queues.may_read_all() or t.namespace = queues.namespace())
    order by t.task_id
  loop
    _act_id := coalesce((
      select a.act_id from queues.act a where a.task_id = _task_id and a.occurred_at < _before
      order by a.act_id desc offset _most limit 1), 0);
    _error_id := coalesce((
      select e.error_id from queues.error e where e.task_id = _task_id and e.occurred_at < _before and e.step is null
      order by e.error_id desc offset _most limit 1), 0);
    return query
    select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
    from (
      select e.* from queues.event_origin e
      where e.task_id = _task_id and e.act_id >= _act_id and e.error_id >= _error_id and e.occurred_at < _before
      order by e.occurred_at desc fetch first (max_events) rows with ties) e
    order by e.occurred_at, e.rank, e.act_id, e.error_id;
  end loop;
end
$$;

comment on function queues.task_events_of(uuid[], integer, timestamptz) is
  'Returns the history of the tasks with these ids, that of each task in order: the last max_events events of each.';
