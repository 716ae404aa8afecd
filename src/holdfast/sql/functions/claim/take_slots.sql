-- Inserts slots for the tasks that are about to be leased, and removes slots without a lease.
-- Internal: called by claim, which holds the limits.
create or replace function queues.take_slots(places tid[], lanes bigint[], token bigint, now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with taken as materialized (
    select r.task_id, r.lane_id from queues.ready r where r.ctid = any (places) and r.lane_id = any (lanes)),
  gate as materialized (
    select g.lane_id, g.subject, g.name, g.namespace, g.concurrency_key
    from queues.gates_of(array(select distinct t.lane_id from taken t), take_slots.now) g
    where g.max_running is not null),
  gone as (
    delete from queues.slot s using (select distinct g.subject, g.name, g.namespace, g.concurrency_key from gate g) g
    where s.subject = g.subject and s.name = g.name and s.namespace = g.namespace and s.concurrency_key = g.concurrency_key
      and not exists (select from queues.lease l where l.task_id = s.task_id and l.token = s.token))
  insert into queues.slot (subject, name, namespace, concurrency_key, task_id, token)
  select g.subject, g.name, g.namespace, g.concurrency_key, t.task_id, take_slots.token from taken t join gate g on g.lane_id = t.lane_id
$$;

comment on function queues.take_slots(tid[], bigint[], bigint, timestamptz) is
  'Inserts slots for the tasks that are about to be leased, and removes slots without a lease.';
