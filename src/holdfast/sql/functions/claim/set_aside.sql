-- Moves waiting tasks to the lane of their concurrency key, which claims do not read, until bring_back; or, if not, to
-- the lane of their type.
-- Internal: called by claim, which holds the ready rows.
create or replace function queues.set_aside(places tid[], until_key_is_free boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _places tid[];
  _lanes bigint[];
begin
  with waiting as materialized (
    select r.ctid as place, r.task_id from queues.ready r where r.ctid = any (places)),
  task as materialized (
    select w.place, t.queue, t.type, t.priority, t.namespace,
      case when until_key_is_free or t.concurrency_key is null then t.concurrency_key else '' end as concurrency_key
    from waiting w join queues.task t on t.task_id = w.task_id
    where t.task_id = any (array(select task_id from waiting))),
  lane as materialized (
    select d.*, queues.own_lane(d.queue, d.type, d.priority, d.concurrency_key, d.namespace) as lane_id
    from (select distinct t.queue, t.type, t.priority, t.concurrency_key, t.namespace from task t) d)
  select array_agg(t.place), array_agg(l.lane_id) into _places, _lanes
  from task t join lane l on l.queue = t.queue and l.type = t.type and l.priority = t.priority
    and coalesce(l.concurrency_key, '') = coalesce(t.concurrency_key, '') and l.namespace = t.namespace;
  perform queues.move_ready(_places, null, _lanes);
end
$$;

comment on function queues.set_aside(tid[], boolean) is
  'Moves waiting tasks to the lane of their concurrency key, or to that of their type.';
