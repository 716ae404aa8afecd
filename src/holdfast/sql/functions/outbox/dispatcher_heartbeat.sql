-- Records a dispatcher's heartbeat, and returns the subscriptions to serve, with their secrets. The dispatcher states
-- for which subscriptions it waits to be woken, which sinks it knows and which subscriptions it cannot serve (an object
-- of reasons by subscription_id). Returns every subscription, and whether it may have events now.
-- For holdfast_dispatcher. Locks: the dispatcher's row.
create or replace function queues.dispatcher_heartbeat(
  dispatcher_id text,
  waiting integer[] default '{}',
  hostname text default 'unknown',
  pid integer default null,
  version text default null,
  sinks text[] default '{}',
  unusable jsonb default '{}')
returns table (
  subscription_id integer, name text, sink text, target text, options jsonb, secrets text[], outstanding boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_dispatch(dispatcher_id, 1, interval '1 minute');
  if unusable is not null and (jsonb_typeof(unusable) <> 'object' or pg_column_size(unusable) > 1000000) then
    raise exception using errcode = 'QF400', message = 'unusable must be an object of reasons by subscription_id';
  end if;
  insert into queues.dispatcher as d (dispatcher_id, hostname, pid, version, waiting, sinks, unusable,
    started_at, last_seen)
  values (dispatcher_id, coalesce(hostname, 'unknown'), pid, version, coalesce(dispatcher_heartbeat.waiting, '{}'),
    coalesce(dispatcher_heartbeat.sinks, '{}'), coalesce(dispatcher_heartbeat.unusable, '{}'), _now, _now)
  on conflict (dispatcher_id) do update
  set waiting = excluded.waiting, sinks = excluded.sinks, unusable = excluded.unusable, last_seen = excluded.last_seen;
  return query
  select s.subscription_id, s.name, s.sink, s.target, s.options, s.secrets,
    s.paused_at is null
      and (select true from queues.delivery d where d.subscription_id = s.subscription_id limit 1) is not null
  from queues.subscription s
  where s.removed_at is null order by s.subscription_id;
end
$$;

comment on function queues.dispatcher_heartbeat(text, integer[], text, integer, text, text[], jsonb) is
  'Records a dispatcher''s heartbeat, and returns the subscriptions to serve, with their secrets.';
