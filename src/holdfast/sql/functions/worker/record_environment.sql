-- Stores the environment of a worker, once per start. It is kept for its runs after the worker is gone.
-- For holdfast_worker. Locks: none.
create or replace function queues.record_environment(worker_id text, environment jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_claim(worker_id, 1, null, null, null, null);
  if environment is null or jsonb_typeof(environment) <> 'object' then
    raise exception using errcode = 'QF400', message = 'environment must be an object';
  end if;
  insert into queues.worker_environment (worker_id, recorded_at, environment)
  values (worker_id, queues.clock(), queues.storable(environment, 16384))
  on conflict do nothing;
end
$$;

comment on function queues.record_environment(text, jsonb) is 'Stores the environment of a worker, once per start.';
