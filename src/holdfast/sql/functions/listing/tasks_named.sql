-- Returns the tasks whose id or idempotency key is exactly this text, of at most 10,000 types that have keys, or whose
-- id ends with it: with eight digits or more, among the newest 200,000.
-- Internal: called by find_tasks.
create or replace function queues.tasks_named(words text)
returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- The types that have keys, with one index lookup for each.
  with recursive keyed(type, n) as (
    (select k.type, 1 from queues.task_key k order by k.type limit 1)
    union all
    select (select k.type from queues.task_key k where k.type > keyed.type order by k.type limit 1), keyed.n + 1
    from keyed where keyed.type is not null and keyed.n < 10000)
  select array(
    select words::uuid where words ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$'
    union all
    (select k.task_id from keyed
     join queues.task_key k on k.type = keyed.type and k.idempotency_key = words
     limit 100)
    union all
    (select t.task_id from (select t.task_id from queues.task t order by t.task_id desc limit 200000) t
     where words ~* '^([0-9a-f]{8,12}|[0-9a-f-]{1,23}-[0-9a-f]{12})$'
       and right(t.task_id::text, length(words)) = lower(words)
     limit 100))
$$;

comment on function queues.tasks_named(text) is
  'Returns the tasks whose id or idempotency key is exactly this text, or whose id ends with it.';
