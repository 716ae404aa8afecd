-- Explains which schedule skips its times because this task is unfinished; null if none does.
-- Internal: called by explain.
create or replace function queues.explain_schedule(task_id uuid, metadata jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('Until it has ended, schedule %s skips its times: %s so far.', s.name, (
    select count(*) from queues.schedule_firing f
    where f.schedule = s.name and f.namespace = s.namespace and f.decision = 'overlapped'
      and f.nominal_at > s.last_nominal_at))
  from queues.schedule s
  where s.name = metadata ->> 'schedule' and s.overlap = 'skip' and s.last_task_id = explain_schedule.task_id
$$;

comment on function queues.explain_schedule(uuid, jsonb) is
  'Explains which schedule skips its times because this task is unfinished; null if none does.';
