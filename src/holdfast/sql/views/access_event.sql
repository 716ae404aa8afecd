-- Acts on tokens, sessions and hidden values: who, when, why. Newest first, so that a limit reads no more than it
-- returns.
create or replace view queues.access_event with (security_barrier) as
select a.access_act_id, a.act, a.occurred_at, a.actor, a.token_id, a.task_id, a.mailbox_message_id, a.address, a.reason
from queues.access_act a order by a.occurred_at desc, a.access_act_id desc;

comment on view queues.access_event is 'Acts on tokens, sessions and hidden values: who, when, why.';
