-- Acts on tokens, sessions and hidden values: who, when, why.
create or replace view queues.access_event with (security_barrier) as
select a.access_act_id, a.act, a.occurred_at, a.actor, a.token_id, a.task_id, a.mailbox_message_id, a.address, a.reason
from queues.access_act a;

comment on view queues.access_event is 'Acts on tokens, sessions and hidden values: who, when, why.';
