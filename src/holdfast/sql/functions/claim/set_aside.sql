-- Moves waiting tasks to the lane of their concurrency key, which claims do not read, until bring_back; or, if not, to
-- the lane of their type.
-- Internal: called by claim, which holds the ready rows.
create or replace function queues.set_aside(places tid[], until_key_is_free boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with gone as (
    -- New rows instead of an update: claims rely on ready rows never moving.
    delete from queues.ready r where r.ctid = any (places) returning r.task_id, r.run_at, r.attempt),
  task as materialized (
    select g.task_id, g.run_at, g.attempt, t.queue, t.type, t.priority, t.namespace,
      case when until_key_is_free or t.concurrency_key is null then t.concurrency_key else '' end as concurrency_key
    from gone g join queues.task t on t.task_id = g.task_id where t.task_id = any (array(select task_id from gone))),
  lane as materialized (
    select d.*, queues.own_lane(d.queue, d.type, d.priority, d.concurrency_key, d.namespace) as lane_id
    from (select distinct t.queue, t.type, t.priority, t.concurrency_key, t.namespace from task t) d)
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, t.run_at, l.lane_id, t.attempt
  from task t join lane l on l.queue = t.queue and l.type = t.type and l.priority = t.priority
    and coalesce(l.concurrency_key, '') = coalesce(t.concurrency_key, '') and l.namespace = t.namespace;
end
$$;

comment on function queues.set_aside(tid[], boolean) is
  'Moves waiting tasks to the lane of their concurrency key, or to that of their type.';
