-- Acts on queues, by whom and why.
create or replace view queues.queue_act with (security_barrier) as
select a.act_id, a.queue, a.act, a.occurred_at, a.actor, a.reason
from queues.act a where a.queue is not null;

comment on view queues.queue_act is 'Acts on queues, by whom and why.';
