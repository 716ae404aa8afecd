-- Does the same as watch_many for processes, which are identified by their wait_key. Returns the current status of each
-- that the session may see.
-- For holdfast_client (processes of its namespace), holdfast_reader and holdfast_operator. Locks: the waiters' rows in
-- the order of key.
create or replace function queues.watch_processes(wait_keys uuid[], ttl interval default '1 minute')
returns table (wait_key uuid, status text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _seen uuid[];
begin
  if wait_keys is null or cardinality(wait_keys) > 10000 then
    raise exception using errcode = 'QF400', message = 'wait_keys must be an array of at most 10000';
  elsif ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  _seen := array(
    select i.wait_key from queues.process_instance i
    where i.wait_key = any (wait_keys) and (_namespace is null or i.namespace = _namespace) order by i.wait_key);
  insert into queues.waiter as w (task_id, until)
  select i.wait_key, _now + ttl from queues.process_instance i
  where i.wait_key = any (_seen) and i.ended_at is null order by i.wait_key
  on conflict (task_id) do update set until = excluded.until
  where w.until < excluded.until - ttl / 2;
  -- A separate statement, so that it sees ends that were committed meanwhile.
  return query
  select i.wait_key, queues.process_status_of(i.decision, i.ended_at) from queues.process_instance i
  where i.wait_key = any (_seen);
end
$$;

comment on function queues.watch_processes(uuid[], interval) is
  'Does the same as watch_many for processes, which are identified by their wait_key.';
