-- Does the same as watch for many tasks, and returns the current status of each that the session may see.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_operator. Locks: the waiters' rows in the
-- order of task_id.
create or replace function queues.watch_many(task_ids uuid[], ttl interval default '1 minute')
returns table (task_id uuid, status text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _seen uuid[];
begin
  if task_ids is null or cardinality(task_ids) > 10000 then
    raise exception using errcode = 'QF400', message = 'task_ids must be an array of at most 10000';
  elsif ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  _seen := array(
    select t.task_id from queues.task t
    where t.task_id = any (task_ids) and (_namespace is null or t.namespace = _namespace) order by t.task_id);
  insert into queues.waiter as w (task_id, until)
  select s.task_id, _now + ttl from unnest(_seen) s(task_id)
  where not exists (select from queues.outcome o where o.task_id = s.task_id)
  order by s.task_id
  on conflict (task_id) do update set until = excluded.until
  where w.until < excluded.until - ttl / 2;
  -- A separate statement, so that it sees outcomes that were committed meanwhile.
  return query
  select s.task_id, queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), _now,
    (select true from queues.wait w where w.task_id = s.task_id limit 1))
  from unnest(_seen) s(task_id)
  left join queues.ready r on r.task_id = s.task_id
  left join queues.lease l on l.task_id = s.task_id
  left join queues.outcome o on o.task_id = s.task_id
  left join queues.deletion d on d.task_id = s.task_id;
end
$$;

comment on function queues.watch_many(uuid[], interval) is
  'Does the same as watch for many tasks, and returns the current status of each that the session may see.';
