-- Makes the worker leader for a term, or renews its term, and returns whether it leads. Leadership is a convenience:
-- nothing is unsafe without a leader.
-- For holdfast_worker. Locks: the leadership, unless another worker leads.
create or replace function queues.lead(worker_id text, term interval default '15 seconds')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- If a crash of the server lost this row, the leader would act beside the next one.
  _durable constant text := queues.commit_to_disk();
  _now timestamptz := queues.clock();
begin
  if worker_id is null or worker_id = '' or term is null
    or term not between interval '1 second' and interval '1 hour'
  then
    raise exception using errcode = 'QF400',
      message = 'lead needs a worker_id and a term between 1 second and 1 hour';
  end if;
  -- The most common case, without a lock.
  if exists (select from queues.leadership l where l.worker_id <> lead.worker_id and l.leader_until >= _now) then
    return false;
  end if;
  perform from queues.leadership l for update;
  -- Read after the row was locked: waiting for it must not extend the term.
  _now := queues.clock();
  insert into queues.leadership as l (worker_id, term, leader_since, leader_until)
  values (worker_id, 1, _now, _now + lead.term)
  on conflict (only_one) do update
  set worker_id = excluded.worker_id,
      term = l.term + (l.worker_id <> excluded.worker_id or l.leader_until < _now)::integer,
      leader_since = case when l.worker_id <> excluded.worker_id or l.leader_until < _now then _now
        else l.leader_since end,
      leader_until = excluded.leader_until
  where l.worker_id = excluded.worker_id or l.leader_until < _now;
  return found;
end
$$;

comment on function queues.lead(text, interval) is
  'Makes the worker leader for a term, or renews its term, and returns whether it leads.';
