-- Returns the task of one nominal time, as an element of enqueue_many. Its metadata contains the schedule and the time.
-- Internal.
create or replace function queues.scheduled_task(task jsonb, schedule text, nominal_at timestamptz, run_at timestamptz)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select task || jsonb_build_object('run_at', run_at,
    'metadata', case jsonb_typeof(task -> 'metadata') when 'object' then task -> 'metadata' else '{}' end
      || jsonb_build_object('schedule', schedule, 'nominal_at', nominal_at))
$$;

comment on function queues.scheduled_task(jsonb, text, timestamptz, timestamptz) is
  'Returns the task of one nominal time, as an element of enqueue_many.';
