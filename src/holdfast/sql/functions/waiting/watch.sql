-- Requests a notification on channel holdfast_done when a task ends, and returns its current status. The payload is the
-- task_id. A notification is only a hint: a waiting client also polls occasionally.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_operator. Locks: the waiter's row.
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
    perform queues.check_task_owner(task_id);
  end if;
  if ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  if not exists (select from queues.outcome o where o.task_id = watch.task_id) then
    insert into queues.waiter as w (task_id, until) values (task_id, _now + ttl)
    on conflict (task_id) do update set until = excluded.until
    where w.until < excluded.until - ttl / 2;
  end if;
  -- A separate statement, so that it sees an outcome that was committed meanwhile.
  return queues.status_now(task_id);
end
$$;

comment on function queues.watch(uuid, interval) is
  'Requests a notification on channel holdfast_done when a task ends, and returns its current status.';
