-- Asks to be told on channel holdfast_done, with the task_id as payload, when a task ends, and answers its status now. A hint
-- only: who waits asks again from time to time. For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_operator.
-- Locks: the waiter's row.
create or replace function queues.watch(task_id uuid, ttl interval default '1 minute')
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.task t where t.task_id = watch.task_id and queues.may_read_all()) then
    perform queues.own_task(task_id);
  end if;
  if ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  if not exists (select from queues.outcome o where o.task_id = watch.task_id) then
    insert into queues.waiter as w (task_id, until) values (task_id, _now + ttl)
    on conflict (task_id) do update set until = excluded.until
    where w.until < excluded.until - ttl / 2;
  end if;
  -- A statement of its own, so that it sees an outcome that came meanwhile.
  return queues.status_now(task_id);
end
$$;

comment on function queues.watch(uuid, interval) is
  'Asks to be told on channel holdfast_done when a task ends, and answers its status now.';
