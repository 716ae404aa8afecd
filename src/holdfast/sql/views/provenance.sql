-- What each start of a worker ran with.
create or replace view queues.provenance with (security_barrier) as
select e.worker_id, e.recorded_at, e.environment from queues.worker_environment e;

comment on view queues.provenance is 'What each start of a worker ran with: versions, commit, host.';
