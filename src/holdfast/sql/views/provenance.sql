-- The environment of each start of a worker: versions, commit, host.
create or replace view queues.provenance with (security_barrier) as
select e.worker_id, e.recorded_at, e.environment from queues.worker_environment e;

comment on view queues.provenance is 'The environment of each start of a worker: versions, commit, host.';
