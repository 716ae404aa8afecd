-- What core reads in a database without events: a view of the same name, without rows.

-- No subscriptions, because there are no events. PostgreSQL knows without looking that it is empty.
create or replace view queues.engine_subscription as
select null::integer as subscription_id where false;

comment on view queues.engine_subscription is 'No subscriptions, because there are no events.';
