-- The run of a spec that can be reused holds a key of unique tasks. An empty type says that the key is a spec.

insert into queues.unique_task (type, key, namespace, task_id)
select '', pg_catalog.encode(r.spec_hash, 'hex'), r.namespace, r.task_id from queues.reusable r
where r.task_id is not null;
drop table queues.reusable;
