-- Notifies idle workers of a task that is due soon, unless none of them serves it or a worker throttles the wake-ups
-- (hold_wakeups). Callers call it for tasks that are due within six seconds, because an idle worker looks every five.
-- NOTIFY takes a lock that all commits of the server share, and wakes every listener. A notification is only a hint: a
-- worker that misses it polls.
-- Internal.
create or replace function queues.wake(queue text, type text, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
      select from queues.worker w
      where w.idle and (wake.queue = any (w.queues)
        or exists (select from unnest(w.type_prefixes) prefix where starts_with(wake.type, prefix))))
    and not queues.are_wakeups_held(wake.queue, wake.now) and queues.may_notify()
  then
    perform pg_notify('holdfast', wake.queue);
  end if;
end
$$;

comment on function queues.wake(text, text, timestamptz) is
  'Notifies idle workers of a task that is due, unless none of them serves it or a worker throttles the wake-ups.';
