-- Opens the breaker of a subscription for a namespace after five consecutive failures of its events, for longer each
-- time; a success closes it. Failures that are reported while it is open were sent before, and do not extend it; that
-- of a probe does. Events of other namespaces are still sent: one may emit what the receiver cannot take. Skips a
-- breaker that an open call of resume_subscription has locked: reports about other subscriptions must not wait for it.
-- Internal: called by settle_events. Locks: the breakers, without waiting.
create or replace function queues.count_delivery_failures(reports queues.delivery_report[], now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.breaker (subscription_id, namespace, failures, openings)
  select distinct r.subscription_id, r.namespace, 0, 0 from unnest(reports) r where r.status = 'failed'
    and not exists (
      select from queues.breaker b where b.subscription_id = r.subscription_id and b.namespace = r.namespace)
  order by 1, 2
  on conflict do nothing;

  with heard as materialized (
    select r.subscription_id, r.namespace, bool_or(r.status = 'delivered') as works,
      count(*) filter (where r.status = 'failed')::integer as failures,
      array_agg(r.token) as tokens, max(r.error) filter (where r.status = 'failed') as error
    from unnest(reports) r group by r.subscription_id, r.namespace order by r.subscription_id, r.namespace),
  held as materialized (
    select b.*, h.works, h.failures as new_failures, h.error, b.probe_token = any (h.tokens) as probed
    from heard h cross join lateral (
      select b.* from queues.breaker b where b.subscription_id = h.subscription_id and b.namespace = h.namespace
      for update skip locked) b
    where h.failures > 0 or b.failures > 0 or b.open_until is not null),
  judged as (
    select h.*, not h.works and h.failures + h.new_failures >= 5 and h.new_failures > 0
      and (h.open_until is null or h.open_until <= now or coalesce(h.probed, false)) as trips
    from held h)
  update queues.breaker b
  set failures = case when j.works then 0 else j.failures + j.new_failures end,
    openings = case when j.works then 0 else j.openings + j.trips::integer end,
    open_until = case when j.works then null
      when j.trips then now + queues.backoff(j.openings + 1)
      when j.probed then now  -- released unsent: the next claim may probe
      else j.open_until end,
    probe_token = case when j.works or j.trips or j.probed then null else j.probe_token end,
    last_failure_at = case when j.new_failures > 0 then now else j.last_failure_at end,
    last_error = coalesce(j.error, j.last_error)
  from judged j where b.subscription_id = j.subscription_id and b.namespace = j.namespace
$$;

comment on function queues.count_delivery_failures(queues.delivery_report[], timestamptz) is
  'Opens the breaker of a subscription for a namespace after five consecutive failures; a success closes it.';
