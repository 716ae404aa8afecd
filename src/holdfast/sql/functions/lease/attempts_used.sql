-- Returns how many attempts a failed one leaves used. Attempts count only while a run makes no progress: if a step was
-- recorded under this claim, or comes with its report, the count restarts with this attempt.
-- Internal.
create or replace function queues.attempts_used(
  task_id uuid, token bigint, attempt integer, generation integer, steps jsonb default null)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when attempt > 1 and (jsonb_array_length(steps) > 0 or (
      select true from queues.step s
      where s.task_id = attempts_used.task_id and s.generation = coalesce(attempts_used.generation, 1)
        and s.token = attempts_used.token limit 1))
    then 1 else attempt end
$$;

comment on function queues.attempts_used(uuid, bigint, integer, integer, jsonb) is
  'Returns how many attempts a failed one leaves used: the count restarts if a step was recorded.';
