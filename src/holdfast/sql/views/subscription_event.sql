-- Acts on subscriptions, by whom and why.
create or replace view queues.subscription_event with (security_barrier) as
select a.act_id, a.subscription, a.act, a.occurred_at, a.actor, a.reason, a.event_id, a.events
from queues.subscription_act a;

comment on view queues.subscription_event is 'Acts on subscriptions, by whom and why.';
