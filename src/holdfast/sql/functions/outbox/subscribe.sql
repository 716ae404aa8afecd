-- Adds a subscription that sends events of these types to a sink, and returns its id. With namespaces, only events of
-- these. Repeating the call with the same
-- arguments changes nothing; the secrets are not compared, because they may have been rotated.
-- For holdfast_operator. Locks: the name.
create or replace function queues.subscribe(
  name text,
  sink text,
  target text,
  event_types text[],
  type_prefixes text[] default '{}',
  options jsonb default '{}',
  secrets text[] default '{}',
  max_attempts integer default 20,
  namespaces text[] default '{}')
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _patterns constant text[] := queues.like_patterns(event_types);
  _subscription_id integer;
begin
  event_types := coalesce(event_types, '{}');
  type_prefixes := coalesce(type_prefixes, '{}');
  namespaces := coalesce(namespaces, '{}');
  perform queues.check_subscription(name, sink, target, event_types, type_prefixes, namespaces, options, secrets,
    max_attempts);
  insert into queues.subscription (name, event_types, type_prefixes, namespaces, event_patterns, prefix_patterns,
    engine_events, sink, target, options, secrets, max_attempts, created_at, created_by)
  values (name, event_types, type_prefixes, namespaces, _patterns,
    queues.like_patterns(array(select prefix || '*' from unnest(subscribe.type_prefixes) prefix)),
    exists (select from unnest(queues.engine_event_types()) known(event_type)
      where queues.is_subscribed(_patterns, '{}', known.event_type, null)),
    sink, target, options, secrets, max_attempts, queues.clock(), session_user)
  on conflict (name) where removed_at is null do nothing
  returning subscription_id into _subscription_id;
  if found then
    perform queues.wake_dispatchers();
    return _subscription_id;
  end if;

  -- A separate statement, so that it sees a subscription that was added meanwhile.
  select s.subscription_id into _subscription_id from queues.subscription s
  where s.name = subscribe.name and s.removed_at is null
    and (s.event_types, s.type_prefixes, s.namespaces, s.sink, s.target, s.options, s.max_attempts)
      = (subscribe.event_types, subscribe.type_prefixes, subscribe.namespaces, subscribe.sink, subscribe.target,
        subscribe.options, subscribe.max_attempts);
  if not found then
    raise exception using errcode = 'QF409',
      message = format('subscription %s already exists with other settings', to_json(name)),
      hint = 'Remove it first, or give this one another name.';
  end if;
  return _subscription_id;
end
$$;

comment on function queues.subscribe(text, text, text, text[], text[], jsonb, text[], integer, text[]) is
  'Adds a subscription that sends events of these types to a sink, and returns its id.';
