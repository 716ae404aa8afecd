-- Checks events that wait for delivery, dead events, and whether a dispatcher runs. Counts up to 10,000 per
-- subscription.
-- Internal: called by health.
create or replace function queues.health_of_outbox(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _timeout constant interval := (select s.value * interval '1 second' from queues.setting s
    where s.name = 'worker_timeout_seconds');
  _sent_by constant bigint := (select count(*) from queues.dispatcher d where d.last_seen > now - _timeout);
begin
  return query
  select 'outbox', case when s.problem is not null then 'red'
      when s.paused_at is not null then queues.level_of(waiting.seconds, 0, 'infinity')
      when waiting.pending >= 10000 then 'red'
      when b.open_until is not null and waiting.pending > 0 then queues.level_of(waiting.seconds, 0, 600)
      else queues.level_of(waiting.seconds, 60, 600) end, s.name, coalesce(waiting.seconds, 0),
    case when s.problem is not null then format('subscription %s cannot be served', s.name)
      when waiting.pending = 0 then format('subscription %s has all its events', s.name)
      else format('%s event%s wait%s for subscription %s, the oldest for %s%s',
        case waiting.pending when 10000 then '10000 or more' else waiting.pending::text end,
        case waiting.pending when 1 then '' else 's' end, case waiting.pending when 1 then 's' else '' end,
        s.name, queues.format_duration(waiting.seconds),
        case when s.paused_at is not null then '; it is paused'
          when b.open_until is not null then '; its receiver fails those of namespace ' || b.namespace
          when _sent_by = 0 then '; no dispatcher is live' else '' end) end,
    case when s.problem is not null
      then 'Fix the problem and restart the dispatcher, or remove the subscription and add it again.'
      when waiting.pending = 0 then null
      when s.paused_at is not null then format('To resume: holdfast events resume %s', s.name)
      when _sent_by = 0 then 'Start a dispatcher: holdfast dispatch'
      when b.open_until is not null then 'Fix its receiver; delivery is retried automatically.'
      when waiting.seconds >= 60 then 'Run more dispatchers, or make the receiver faster.' end,
    left(case when s.problem is not null then s.problem
      when waiting.pending > 0 and s.paused_at is null and b.open_until is not null then b.last_error end, 200)
  from (
    select s.*, (
      select format('dispatcher on %s: %s', d.hostname, d.unusable ->> s.subscription_id::text) from queues.dispatcher d
      where d.unusable ? s.subscription_id::text and d.last_seen > health_of_outbox.now - _timeout
      order by d.last_seen desc limit 1) as problem
    from queues.subscription s where s.removed_at is null) s
  left join lateral (
    select b.* from queues.breaker b where b.subscription_id = s.subscription_id
    order by b.open_until desc nulls last, b.last_failure_at desc nulls last limit 1) b on true
  cross join lateral (
    select count(*) as pending, extract(epoch from now - min(d.emitted_at))::double precision as seconds
    from (select d.emitted_at from queues.delivery d where d.subscription_id = s.subscription_id limit 10000) d) waiting
  order by s.problem is null, waiting.seconds desc nulls last limit 100;

  return query
  select 'dead_events', queues.level_of(dead.events, 1, 1000), s.name, dead.events::double precision,
    format('%s event%s for subscription %s %s given up',
      case dead.events when 1000 then '1000 or more' else dead.events::text end,
      case dead.events when 1 then '' else 's' end, s.name, case dead.events when 1 then 'was' else 'were' end),
    format('Once its receiver works again: holdfast events redrive %s', s.name), null
  from queues.subscription s
  cross join lateral (
    select count(*) as events from (
      select from queues.dead_delivery d where d.subscription_id = s.subscription_id limit 1000) d) dead
  where s.removed_at is null and dead.events > 0
  order by dead.events desc limit 100;
end
$$;

comment on function queues.health_of_outbox(timestamptz) is
  'Checks events that wait for delivery, dead events, and whether a dispatcher runs.';
