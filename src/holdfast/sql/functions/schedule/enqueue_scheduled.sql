-- Enqueues the tasks of nominal times with the rights, login and namespace of the schedule, and returns their ids.
-- Internal.
create or replace function queues.enqueue_scheduled(schedule queues.schedule, nominal_times timestamptz[],
  now timestamptz)
returns uuid[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select array_agg(i.task_id order by i.n)
  from queues.insert_tasks((
      select jsonb_agg(queues.scheduled_task((schedule).task, (schedule).name, t.nominal_at,
        greatest(now, t.nominal_at) + random() * (schedule).jitter) order by t.nominal_at)
      from unnest(nominal_times) t(nominal_at)),
    (schedule).for_process, (schedule).created_by, (schedule).namespace) with ordinality i(task_id, created, n)
$$;

comment on function queues.enqueue_scheduled(queues.schedule, timestamptz[], timestamptz) is
  'Enqueues the tasks of nominal times with the rights, login and namespace of the schedule, and returns their ids.';
