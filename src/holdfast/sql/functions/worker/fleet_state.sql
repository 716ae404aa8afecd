-- Returns whether a worker is registered, how long the current leader's term lasts unless it is renewed (null without a
-- leader), and how long until this worker should sweep. Usually the leader sweeps first, and the next call returns a
-- later time. Zero or less if the last sweep was over two seconds ago; null if there was no lease at the last sweep.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.fleet_state(
  worker_id text, out registered boolean, out term_left interval, out sweep_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  registered := exists (select from queues.worker w where w.worker_id = fleet_state.worker_id);
  term_left := (select l.leader_until - _now from queues.leadership l where l.leader_until >= _now);
  sweep_in := interval '0';
  -- A sweep that is later than the clock was made before the clock was set back.
  select s.next_expiry + interval '1 second' - _now into sweep_in from queues.last_sweep s
  where s.swept_at between _now - interval '2 seconds' and _now + interval '1 second';
  if not found then
    sweep_in := interval '0';
  end if;
end
$$;

comment on function queues.fleet_state(text) is
  'Returns whether a worker is registered, how long the current term lasts, and when this worker should sweep.';
