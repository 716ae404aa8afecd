-- Returns how long a worker may rest, and records that it is alive if it holds no tasks: then its heartbeats are not
-- needed. Returns what next_due and fleet_state return, and whether the worker is marked as idle: all that an idle
-- worker asks, in one transaction.
-- For holdfast_worker. Locks: the worker's row, without waiting.
create or replace function queues.rest(
  worker_id text, holding boolean, queues text[] default null, type_prefixes text[] default null,
  memory_bytes bigint default null, finished bigint default null, per_second real default null,
  out due interval, out held boolean, out idle boolean, out registered boolean, out term_left interval,
  out sweep_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  -- A worker that holds tasks shows with its heartbeats that it is alive, and which of them have begun.
  update queues.worker w set last_heartbeat = queues.clock(), listed_at = queues.clock(), in_flight = 0, running = 0,
    memory_bytes = coalesce(rest.memory_bytes, w.memory_bytes), finished = coalesce(rest.finished, w.finished),
    per_second = coalesce(rest.per_second, w.per_second)
  where w.worker_id in (
    select own.worker_id from queues.worker own
    where own.worker_id = rest.worker_id and not holding for no key update skip locked);
  idle := exists (select from queues.worker w where w.worker_id = rest.worker_id and w.idle);
  select f.registered, f.term_left, f.sweep_in into registered, term_left, sweep_in
  from queues.fleet_state(worker_id) f;
  select n.due, n.held into due, held from queues.next_due(rest.queues, type_prefixes) n;
end
$$;

comment on function queues.rest(text, boolean, text[], text[], bigint, bigint, real) is
  'Returns how long a worker may rest, and records that it is alive if it holds no tasks.';
