-- Notifies dispatchers that wait for one of these subscriptions; without subscriptions, all that wait. Sends nothing if
-- none waits. A notification is only a hint: a dispatcher that misses it polls.
create or replace function queues.wake_dispatchers(subscription_ids integer[] default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.dispatcher d where coalesce(d.waiting && subscription_ids, true))
    and queues.may_notify()
  then
    perform pg_notify('holdfast_outbox', '');
  end if;
end
$$;

comment on function queues.wake_dispatchers(integer[]) is
  'Notifies dispatchers that wait for one of these subscriptions; without subscriptions, all that wait.';
