-- Subscriptions: which events are sent, and where to. events.sql reads them when an event is emitted, and
-- deliveries.sql when events are claimed.
-- Invariant: a name belongs to at most one subscription that is not removed. What it matches and where it sends never
-- changes: for that, it is removed and added again. A removed one keeps its row, without its secrets, until
-- prune_events has removed what was left of it.
-- Lock order: the subscription, then its breakers. Sessions that change the same one wait for each other.
-- At the same time: emitting and claiming lock no subscription. An event is sent to those that the emitting statement
-- has seen, so one that is added or removed meanwhile begins or ends with the events after its commit. Two calls that
-- add the same name wait for each other, and the second gets the id of the first, or an error if its settings differ.

-- Stops the delivery of a subscription's events until it is resumed, and returns whether it was active. Events
-- accumulate meanwhile. Events that are being sent are not affected.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.pause_subscription(name text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
begin
  update queues.subscription s
  set paused_at = queues.clock(), paused_by = queues.actor(), pause_reason = left(pause_subscription.reason, 2000)
  where s.subscription_id = _subscription_id and s.paused_at is null;
  if not found then
    return false;
  end if;
  insert into queues.subscription_act (subscription, act, occurred_at, actor, reason)
  values (name, 'paused', queues.clock(), queues.actor(), left(reason, 2000));
  return true;
end
$$;

-- Locks the subscription of that name and returns its id; raises an error if there is none.
create or replace function queues.find_subscription(name text)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _subscription_id integer;
begin
  select s.subscription_id into _subscription_id from queues.subscription s
  where s.name = find_subscription.name and s.removed_at is null for update;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no subscription %s', coalesce(to_json(name)::text, 'null')),
      hint = 'holdfast events list shows the existing ones.';
  end if;
  return _subscription_id;
end
$$;

-- Resumes the delivery of a subscription's events at once, and returns whether it was paused. Also resets its breakers.
-- For holdfast_operator. Locks: the subscription, then its breakers.
create or replace function queues.resume_subscription(name text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _was_paused boolean;
begin
  update queues.subscription s set paused_at = null, paused_by = null, pause_reason = null
  where s.subscription_id = _subscription_id and s.paused_at is not null;
  _was_paused := found;
  if _was_paused then
    insert into queues.subscription_act (subscription, act, occurred_at, actor, reason)
    values (name, 'resumed', queues.clock(), queues.actor(), left(reason, 2000));
  end if;
  update queues.breaker b set failures = 0, openings = 0, open_until = null, probe_token = null
  where b.subscription_id = _subscription_id;
  perform queues.wake_dispatchers();
  return _was_paused;
end
$$;

-- Adds a new secret, keeps a number of older ones, and returns how many there are. Events are signed with all of them,
-- until receivers know the new one.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.rotate_secret(name text, secret text, keep integer default 1)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _secrets text[];
begin
  perform queues.check_number('keep', keep, 0, 4);
  select array[secret] || (array_remove(s.secrets, secret))[1:keep] into _secrets
  from queues.subscription s where s.subscription_id = _subscription_id;
  perform queues.check_secrets(_secrets);
  update queues.subscription s set secrets = _secrets where s.subscription_id = _subscription_id;
  return cardinality(_secrets);
end
$$;

-- Refuses secrets of an unknown form. A secret is whsec_ with 24 to 64 bytes in base64, or env:HOLDFAST_SINK_NAME for a
-- variable of the dispatcher. The errors do not repeat the value.
create or replace function queues.check_secrets(secrets text[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if secrets is null or cardinality(secrets) > 5 then
    raise exception using errcode = 'QF400', message = 'there may be at most five secrets';
  elsif exists (
    select from unnest(secrets) secret
    where secret is null or secret !~ '^(whsec_[A-Za-z0-9+/]{32,86}={0,2}|env:HOLDFAST_SINK_[A-Za-z0-9_]{1,80})$')
  then
    raise exception using errcode = 'QF400',
      message = 'a secret is neither whsec_ with 24 to 64 bytes in base64 nor env:HOLDFAST_SINK_NAME';
  end if;
end
$$;

-- Adds a subscription that sends events of these types to a sink, and returns its id. With namespaces, only events of
-- these. Repeating the call with the same arguments changes nothing; the secrets are not compared, because they may
-- have been rotated.
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

-- Converts patterns that end in a star to the form that LIKE ANY compares.
create or replace function queues.like_patterns(patterns text[])
returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(
    case when right(pattern, 1) = '*' then regexp_replace(left(pattern, -1), '([\\%_])', '\\\1', 'g') || '%'
      else regexp_replace(pattern, '([\\%_])', '\\\1', 'g') end), '{}')
  from unnest(patterns) pattern
$$;

-- Refuses an invalid subscription: its patterns, sink, options, address or secrets.
create or replace function queues.check_subscription(
  name text, sink text, target text, event_types text[], type_prefixes text[], namespaces text[],
  options jsonb, secrets text[], max_attempts integer)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _pattern text;
  _problem text;
begin
  perform queues.check_name('name', name);
  perform queues.check_name('sink', sink);
  foreach _pattern in array event_types loop
    if _pattern is distinct from '*' then
      perform queues.check_name('event_types', case when _pattern like '%.*' then left(_pattern, -2) else _pattern end);
    end if;
    if _pattern like '%*%_' then
      raise exception using errcode = 'QF400', message = format('event_types %s is malformed', to_json(_pattern)),
        hint = 'A star stands alone or at the end, after a dot: *, order.*';
    end if;
    if split_part(_pattern, '.', 1) in ('task', 'worker') and not exists (
      select from unnest(queues.engine_event_types()) known(event_type)
      where queues.is_subscribed(queues.like_patterns(array[_pattern]), '{}', known.event_type, null))
    then
      raise exception using errcode = 'QF400', message = format('there are no events of type %s', to_json(_pattern)),
        hint = format('The engine emits %s.', array_to_string(queues.engine_event_types(), ', '));
    end if;
  end loop;
  perform queues.check_namespace(n) from unnest(namespaces) n;
  _problem := case
    when cardinality(event_types) = 0
      then 'event_types must hold at least one pattern, such as order.* or task.dead_letter'
    when cardinality(event_types) > 100 or cardinality(type_prefixes) > 100 or cardinality(namespaces) > 100
      then 'event_types, type_prefixes and namespaces hold at most 100 elements each'
    when array_position(type_prefixes, null) is not null or '' = any (type_prefixes)
      then 'type_prefixes must hold no nulls or empty texts'
    when target is null or target = '' or octet_length(target) > 2000
      then 'target must be between 1 and 2000 bytes long'
    when target ~ '[\u0001-\u0020\u007f-\u009f]' then 'target must hold neither white space nor control characters'
    when options is null or jsonb_typeof(options) <> 'object' or pg_column_size(options) > 8192
      then 'options must be an object of at most 8192 bytes'
    when max_attempts is null or max_attempts not between 1 and 1000 then 'max_attempts must be between 1 and 1000'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  perform queues.check_sink(sink, target, options);
  perform queues.check_secrets(secrets);
end
$$;

-- Returns whether a subscription matches an event. The event's type must match a pattern and, if there are prefixes,
-- the event must be about a task whose type begins with one. Patterns and prefixes are as like_patterns returns them.
-- No pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_subscribed(event_patterns text[], prefix_patterns text[], event_type text,
  task_type text)
returns boolean
language sql immutable parallel safe
as $$ select event_type like any (event_patterns)
  and (prefix_patterns = '{}' or coalesce(task_type like any (prefix_patterns), false)) $$;

-- Refuses an unknown sink, an invalid target, unknown options, and variables other than HOLDFAST_SINK_*. Dispatchers
-- report problems that only they can detect through dispatcher_heartbeat.
create or replace function queues.check_sink(sink text, target text, options jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _reference constant text := '^env:HOLDFAST_SINK_[A-Za-z0-9_]{1,80}$';
  _known record;
  _odd text;
begin
  select referred.value into _odd
  from (
    select check_sink.target as value
    union all select o.value #>> '{}' from jsonb_each(options) o
    union all select h.value from jsonb_each_text(case jsonb_typeof(options -> 'headers')
      when 'object' then options -> 'headers' else '{}' end) h
  ) referred
  where referred.value like 'env:%' and referred.value !~ _reference limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s cannot be used', to_json(left(_odd, 100))),
      hint = 'Only variables that begin with HOLDFAST_SINK_ can be named: env:HOLDFAST_SINK_TOKEN.';
  end if;

  select k.* into _known from queues.sink_options() k where k.sink = check_sink.sink;
  if not found then
    if not exists (select from queues.dispatcher d where check_sink.sink = any (d.sinks)) then
      raise exception using errcode = 'QF400', message = format('no dispatcher has a sink %s', to_json(sink)),
        hint = format('Allowed: %s. For a sink of a package, first start a dispatcher that has it installed.', (
          select string_agg(distinct named.sink, ', ') from (
            select k.sink from queues.sink_options() k union all select unnest(d.sinks)
            from queues.dispatcher d) named));
    end if;
    return;
  end if;

  if target !~ _known.target and target not like 'env:%' then
    raise exception using errcode = 'QF400', message = format('target is not valid for the sink %s', sink),
      hint = format('Give one such as %s, or env:HOLDFAST_SINK_NAME.', _known.example);
  end if;
  select o.key into _odd from jsonb_each(options) o
  where o.value <> 'null' and (_known.options ->> o.key) is distinct from jsonb_typeof(o.value) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('options.%s is %s', _odd, case when _known.options ? _odd
        then format('not a %s', _known.options ->> _odd) else format('not an option of the sink %s', sink) end),
      hint = format('Its options: %s.',
        coalesce((select string_agg(k, ', ' order by k) from jsonb_object_keys(_known.options) k), 'none'));
  end if;
end
$$;

-- Returns the built-in sinks, the form of their targets, and their options with the accepted JSON types.
create or replace function queues.sink_options()
returns table (sink text, target text, example text, options jsonb)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  values
    ('http', '^https?://.', 'https://shop.example.com/events',
      '{"mode": "string", "headers": "object", "timeout": "number", "concurrency": "number"}'::jsonb),
    ('nats', '^(nats|tls)://.', 'tls://nats.example.com:4222',
      '{"mode": "string", "subject": "string", "stream": "string", "timeout": "number", "concurrency": "number"}'),
    ('amqp', '^amqps?://.', 'amqps://user@rabbit.example.com/vhost',
      '{"mode": "string", "exchange": "string", "routing_key": "string", "timeout": "number", "concurrency": '
        '"number"}'),
    ('file', '^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.jsonl$', 'orders.jsonl', '{"fsync": "string"}'),
    ('console', '', '-', '{}')
$$;

-- Emits an event of type subscription.test to this subscription only, and returns its id. It is delivered like any
-- other event.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.test_subscription(name text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _event_id constant uuid := queues.new_task_id();
  _number constant bigint := nextval('queues.event_number');
  _now constant timestamptz := queues.clock();
begin
  insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, event_type, subject,
    emitted_by, namespace, deliveries, data)
  values (_event_id, _number, (pg_current_xact_id()::text::bigint + queues.event_shift())::text::xid8, _now,
    'subscription.test', name, session_user, queues.namespace(), 1, jsonb_build_object('subscription', name));
  insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
    attempt, counted)
  values (_subscription_id, queues.namespace(), _event_id::text, _number, _event_id, _now, _now, 0, false);
  perform queues.wake_dispatchers(array[_subscription_id]);
  return _event_id;
end
$$;

-- Ends a subscription and frees its name; outstanding events are not delivered.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.unsubscribe(name text)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
begin
  update queues.subscription s set removed_at = queues.clock(), removed_by = session_user, engine_events = false,
    secrets = '{}'
  where s.subscription_id = _subscription_id;
end
$$;
