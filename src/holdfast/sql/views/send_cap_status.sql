-- How much of each cap is used in the current period. Caps without a current count are not shown.
create or replace view comms.send_cap_status with (security_barrier) as
select c.channel, c.scope, c.period, k.subject, k.sent, c.most, k.ends_at
from comms.send_cap c
join comms.send_count k on k.channel = c.channel and k.scope = c.scope and k.period = c.period
  and k.ends_at > queues.clock();

comment on view comms.send_cap_status is 'How much of each cap is used in the current period.';
