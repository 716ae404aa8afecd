-- The steps of runs that have come to an end, in words, of each generation. The same runs are visible as in
-- queues.task_status.
create or replace view queues.step_status with (security_barrier) as
select s.task_id, s.number, s.name, queues.step_kind(s.kind) as kind, s.tries,
  s.ended_at - s.took_ms * interval '1 millisecond' as started_at, s.ended_at, s.until, s.result, s.error,
    s.signal_id, s.token, s.generation, s.arguments
from queues.step s
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

comment on view queues.step_status is 'The steps of runs that have come to an end, in words.';
