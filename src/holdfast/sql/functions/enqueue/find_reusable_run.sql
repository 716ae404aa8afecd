-- Returns the run that a deterministic task can reuse, or null. The run has the same spec and namespace and has
-- succeeded or, with active, is not finished. Holds the row of the spec until the transaction ends, so that two
-- simultaneous callers get one run.
-- For holdfast_client and holdfast_process; called by enqueue_reusing. Locks: the row of the spec.
create or replace function queues.find_reusable_run(type text, payload jsonb, executor text, reuse text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_variable
declare
  _namespace constant text := queues.namespace();
  _hash bytea;
  _holder uuid;
begin
  if reuse is null or reuse not in ('succeeded', 'active') then
    raise exception using errcode = 'QF400', message = format('reuse %s is unknown', to_json(reuse)),
      hint = 'Allowed: succeeded, active.';
  elsif type is null or payload is null or payload = 'null' or queues.document_problem(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes')) is not null
  then
    return null;  -- enqueue raises the error
  end if;
  _hash := queues.spec_hash(type, queues.executor_for(executor, payload), payload);
  -- Retention may remove the row between the two statements; it is then inserted again.
  for _try in 1..10 loop
    insert into queues.reusable (spec_hash, namespace) values (_hash, _namespace) on conflict do nothing;
    select r.task_id into _holder from queues.reusable r
    where r.spec_hash = _hash and r.namespace = _namespace for update;
    exit when found;
  end loop;
  -- A separate statement, so that it sees what other transactions committed during the wait.
  return (
    select t.task_id from queues.task t
    left join queues.outcome o on o.task_id = t.task_id
    where t.task_id = _holder
      and (o.status = 'succeeded' or find_reusable_run.reuse = 'active' and o.task_id is null)
      and (select true from queues.deletion d where d.task_id = t.task_id limit 1) is null);
end
$$;

comment on function queues.find_reusable_run(text, jsonb, text, text) is
  'Returns the run that a deterministic task can reuse, or null.';
