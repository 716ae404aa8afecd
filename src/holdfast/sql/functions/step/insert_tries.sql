-- Writes the failed tries of steps of runs whose leases the caller has locked, as errors of their tasks. Of each step,
-- the newest 50 stay, however often it is tried.
-- Internal: called by insert_steps. Locks: none.
create or replace function queues.insert_tries(runs jsonb, places integer[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _kept constant integer := 50;
begin
  insert into queues.error (task_id, token, occurred_at, retry_at, attempt, recovered, kind, message, worker_id,
    detail, step, step_try, step_tries, generation)
  select r.task_id, r.token, insert_tries.now, coalesce(t.retry_at, insert_tries.now),
    coalesce(a.attempt, 0), false,
    queues.error_kind(e.error, 'handler_error'), queues.error_message(e.error, 'no message'),
    a.worker_id, e.error,
    case when t.try >= 0 and octet_length(t.name) between 1 and 500 then t.name
      else queues.refuse_step(t.name, t.try, 'try') end,
    t.try, t.tries, queues.current_generation(r.task_id)
  from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, tries jsonb))
    with ordinality r(task_id, token, tries, n)
  cross join lateral jsonb_to_recordset(r.tries) as t(name text, try integer, tries integer, retry_at timestamptz,
    error jsonb)
  cross join lateral (select queues.storable(t.error, 65536) as error) e
  cross join lateral queues.attempt_by_token(r.task_id, r.token) a
  where r.n = any (places)
  on conflict do nothing;

  if jsonb_path_exists(runs, '$[*].tries[*] ? (@.try > $kept)', jsonb_build_object('kept', _kept)) then
    perform set_config('holdfast.retention', 'on', true);
    delete from queues.error e
    using rows from (jsonb_to_recordset(runs) as (task_id uuid, tries jsonb)) with ordinality r(task_id, tries, n)
    cross join lateral jsonb_to_recordset(r.tries) as t(name text, try integer)
    where r.n = any (places) and e.task_id = r.task_id and e.generation = queues.current_generation(r.task_id)
      and e.step = t.name and e.step_try <= t.try - _kept;
    perform set_config('holdfast.retention', _retention, true);
  end if;
end
$$;

comment on function queues.insert_tries(jsonb, integer[], timestamptz) is
  'Writes the failed tries of steps of runs whose leases the caller has locked; of each step, the newest 50 stay.';
