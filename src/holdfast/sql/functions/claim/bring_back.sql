-- Lets tasks that wait for the end of another one of their concurrency key be claimed: as many of each lane of the key
-- as have ended. Runs after the statement that removed a lease or a waiting task, so that it sees what claims have set
-- aside until then. What still may not run is set aside again by the next claim. Rows that another transaction holds
-- are skipped: if it moves or ends the task, it calls this function itself; if not, tidy_lanes does.
-- Internal: called when a lease that is awaited ends, and when a waiting task with a key is removed or moved.
-- Locks: ready rows, without waiting.
create or replace function queues.bring_back(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _places tid[];
  _lanes bigint[];
begin
  with ended as materialized (
    select t.concurrency_key, t.namespace, count(*) as count from queues.task t
    where t.task_id = any (task_ids) and t.concurrency_key is not null group by t.concurrency_key, t.namespace),
  head as materialized (
    select r.place, l.lane_id, l.queue, l.type, l.priority, l.concurrency_key, l.namespace
    from ended e
    join queues.lane l on l.concurrency_key = e.concurrency_key and l.namespace = e.namespace
      and l.concurrency_key > ''
    cross join lateral (
      select r.ctid as place from queues.ready r where r.lane_id = l.lane_id
      order by r.run_at, r.task_id limit e.count for update skip locked) r),
  lane as materialized (
    select d.lane_id, queues.lane_for(d.queue, d.type, d.priority, d.concurrency_key, d.namespace) as back_to
    from (select distinct h.lane_id, h.queue, h.type, h.priority, h.concurrency_key, h.namespace from head h) d)
  select array_agg(h.place), array_agg(l.back_to) into _places, _lanes from head h join lane l on l.lane_id = h.lane_id;
  if _places is not null then
    perform queues.move_ready(_places, null, _lanes);
  end if;
end
$$;

comment on function queues.bring_back(uuid[]) is
  'Lets tasks that wait for the end of another one of their concurrency key be claimed.';
