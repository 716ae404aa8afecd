-- Lets running tasks of a queue or type count under its limit, although they were claimed before it was set. Skips
-- those that another transaction holds. A task in a lane that types share moves to the lane of its type.
-- Internal. Locks: leases, without waiting.
create or replace function queues.count_running(subject text, name text)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with task as materialized (
    select e.task_id, t.queue, t.type, t.priority, t.namespace,
      case when t.concurrency_key is not null then '' end as key
    from queues.lease e
    join queues.lane l on l.lane_id = e.lane_id
    join queues.task t on t.task_id = e.task_id
    where case count_running.subject when 'queue' then l.queue = count_running.name and e.limited is not true
      else t.type = count_running.name and (e.limited is not true or l.type = '') end
    for no key update of e skip locked)
  update queues.lease e
  set limited = true, lane_id = case when count_running.subject = 'queue' then e.lane_id
    else queues.own_lane(t.queue, t.type, t.priority, t.key, t.namespace) end
  from task t where e.task_id = t.task_id
$$;

comment on function queues.count_running(text, text) is
  'Lets running tasks of a queue or type count under its limit, although they were claimed before it was set.';
