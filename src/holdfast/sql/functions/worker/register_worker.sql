-- Registers a worker. A worker takes a new id at every start. If it is silent for longer than the timeout, it counts as
-- dead: it is removed, and other workers get its tasks. The types are those that it has handlers for. Returns the
-- setting max_result_bytes.
-- For holdfast_worker. Locks: the worker's row.
create or replace function queues.register_worker(
  worker_id text,
  hostname text default 'unknown',
  pid integer default null,
  version text default null,
  queues text[] default null,
  type_prefixes text[] default null,
  concurrency integer default 1,
  timeout interval default null,
  heartbeat interval default null,
  types text[] default null)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_claim(worker_id, 1, queues, type_prefixes, null, null);
  if hostname is null or concurrency is null or concurrency < 1 then
    raise exception using errcode = 'QF400',
      message = case when hostname is null then 'hostname must not be null' else 'concurrency must be at least 1' end;
  end if;
  if timeout not between interval '5 seconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'timeout must be between 5 seconds and 1 day';
  elsif heartbeat not between interval '10 milliseconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'heartbeat must be between 10 milliseconds and 1 day';
  end if;
  insert into queues.worker as w (worker_id, hostname, pid, version, queues, type_prefixes, types, concurrency,
    in_flight, running, idle, started_at, last_heartbeat, timeout, heartbeat)
  values (worker_id, hostname, pid, version,
    coalesce(register_worker.queues, case when type_prefixes is null then array['default'] else '{}' end),
    coalesce(type_prefixes, '{}'), coalesce(register_worker.types, '{}'), concurrency, 0, 0, false, _now, _now,
    coalesce(register_worker.timeout,
      (select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds')),
    coalesce(register_worker.heartbeat, interval '10 seconds'))
  on conflict (worker_id) do update
  set hostname = excluded.hostname, pid = excluded.pid, version = excluded.version, queues = excluded.queues,
      type_prefixes = excluded.type_prefixes, types = excluded.types, concurrency = excluded.concurrency,
      in_flight = 0, running = 0,
      idle = false, started_at = excluded.started_at, last_heartbeat = excluded.last_heartbeat,
      timeout = excluded.timeout, heartbeat = excluded.heartbeat, memory_bytes = null, finished = null,
      per_second = null;
  return (select s.value from queues.setting s where s.name = 'max_result_bytes');
end
$$;

comment on function queues.register_worker(
  text, text, integer, text, text[], text[], integer, interval, interval, text[]) is
  'Registers a worker, and returns the setting max_result_bytes.';
