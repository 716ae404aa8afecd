-- Explains which events about a task have not reached their subscriptions, and why; null if all have.
-- Internal: called by explain.
create or replace function queues.explain_events(task_id uuid, now timestamptz)
returns table (why text, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('Its event %s waits for subscription %s since %s: %s.', e.event_type, s.name,
    date_trunc('second', d.emitted_at),
    case when s.paused_at is not null then 'it is paused'
      when d.last_error is not null then 'delivery failed'
      when b.open_until is not null then 'its receiver fails'
      when not exists (select from queues.dispatcher p where p.last_seen > now - (
          select g.value * interval '1 second' from queues.setting g where g.name = 'worker_timeout_seconds'))
        then 'no dispatcher is live'
      when d.lease_until >= now then 'dispatcher ' || d.dispatcher_id || ' is sending it'
      else 'others come before it' end), ' '
    order by e.event_number, s.name),
    string_agg(distinct left(coalesce(d.last_error, case when b.open_until is not null then b.last_error end), 200),
      '; ')
      filter (where s.paused_at is null)
  from queues.outbox_event e
  cross join queues.subscription s
  join queues.delivery d on d.subscription_id = s.subscription_id
    and d.namespace = e.namespace and d.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
    and d.event_number = e.event_number
  left join queues.breaker b on b.subscription_id = s.subscription_id and b.namespace = e.namespace
  where e.task_id = explain_events.task_id and s.removed_at is null
$$;

comment on function queues.explain_events(uuid, timestamptz) is
  'Explains which events about a task have not reached their subscriptions, and why; null if all have.';
