-- What suspended runs wait for. The same runs are visible as in queues.task_status.
create or replace view queues.wait_status with (security_barrier) as
select w.task_id, t.type, t.queue, w.name, w.signal, w.until, w.on_task
from queues.wait w
join queues.ready r on r.task_id = w.task_id and r.attempt = 0
join queues.task t on t.task_id = w.task_id
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

comment on view queues.wait_status is 'What suspended runs wait for.';
