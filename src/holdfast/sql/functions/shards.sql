-- What this database is: which units of the engine it has, which of several databases (shards) it is, and the ids of
-- tasks and events that carry its number. Ids are UUIDv7, so that new rows are inserted at the end of an index, and
-- retention finds the oldest by id. Without uuidv7() in the server: 48 bits of milliseconds, 12 bits of their fraction,
-- 18 bits of a sequence, the rest random.
-- Invariant: the number of a shard never changes, and neither does the number of shards that keys are spread over. What
-- may exist once, such as schedules, is on the first. Ids grow from call to call within a session, so that tasks of one
-- batch keep their order. Byte 11 is the number of the shard: a constant of the function, because reading it from
-- queues.shard would double the cost of an id. holdfast migrate runs this file again when it has numbered a shard.
-- Lock order: the row of this shard; or the settings, limits, policies, pauses, namespaces, tokens and subscriptions
-- that a new shard takes over. Both wait.
-- At the same time: of two sessions that number a shard, the unique index lets one through. Shards share no
-- transaction: what an operator sets reaches each of them separately. Ids of different sessions are in order only as
-- far as their clocks are read in order, and an older id may appear after a newer one.
-- Explained in docs/design/retention.md.

-- Returns the units that are installed, core first.
-- For holdfast_client, holdfast_worker, holdfast_dispatcher and holdfast_reader. Locks: none.
create or replace function queues.installed_units()
returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select array_agg(u.unit order by u.unit <> 'core', u.unit) from queues.unit u where u.installed $$;

-- Records which shard this database is, and returns whether that is new. Numbers never change, because ids carry them,
-- nor does the number of shards that keys are spread over: a shard that is added later gets only tasks without a key.
-- Only the first shard may hold tasks before it is numbered, because their ids carry the number 0.
-- For holdfast_owner: holdfast migrate calls it, and then replaces new_task_id. Locks: the row of this shard.
create or replace function queues.number_shard(name text, number integer, key_shards integer)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _known queues.shard;
begin
  select * into _known from queues.shard for update;
  if found then
    if (_known.shard_name, _known.shard_number, _known.key_shards)
      is distinct from (name, number::smallint, key_shards::smallint)
    then
      raise exception using message = format(
        'This database is shard %s, number %s, with keys on %s shards, and the settings call it %s, number %s, with '
        'keys on %s. The order of the shards never changes, because ids carry their numbers. Put the settings back.',
        _known.shard_name, _known.shard_number, _known.key_shards, name, number, key_shards);
    end if;
    return false;
  end if;
  if number > 0 and exists (select from queues.task) then
    raise exception using message = format(
      'The database of shard %s, number %s, already holds tasks, and their ids belong to the first shard. '
      'Name this database first, or give an empty one.', name, number);
  end if;
  insert into queues.shard (shard_number, shard_name, key_shards, numbered_at)
  values (number, name, key_shards, queues.clock());
  return true;
end
$$;

-- Returns what an operator has set in this database: settings, limits, retention, pauses, namespaces, access tokens and
-- subscriptions. A new shard takes it with take_shard_settings, so that it refuses and allows what the others do.
-- For holdfast_owner: holdfast shards add calls it on the first shard.
create or replace function queues.shard_settings()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'setting', (select coalesce(jsonb_agg(to_jsonb(s)), '[]') from queues.setting s),
    'retention', (select coalesce(jsonb_agg(to_jsonb(r)), '[]') from queues.retention r),
    'task_limit', (select coalesce(jsonb_agg(to_jsonb(l)), '[]') from queues.task_limit l),
    'paused_queue', (select coalesce(jsonb_agg(to_jsonb(q)), '[]') from queues.paused_queue q),
    'namespace_login', (select coalesce(jsonb_agg(to_jsonb(n)), '[]') from queues.namespace_login n),
    'access_token', queues.shard_tokens(), 'subscription', queues.shard_subscriptions())
$$;

-- Sets in this database what an operator has set in another one, and removes what was set here. Only before the first
-- task: a limit or a pause that comes later has to be applied to the tasks that there are.
-- For holdfast_owner: holdfast shards add calls it on a new shard. Locks: the tables that it fills.
create or replace function queues.take_shard_settings(settings jsonb)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queues.task) then
    raise exception using message = 'This database already holds tasks, so it cannot take the settings of another one.';
  end if;
  delete from queues.setting;
  insert into queues.setting select s.* from jsonb_populate_recordset(null::queues.setting, settings -> 'setting') s;
  delete from queues.retention;
  insert into queues.retention
  select r.* from jsonb_populate_recordset(null::queues.retention, settings -> 'retention') r;
  delete from queues.task_limit;
  insert into queues.task_limit
  select l.* from jsonb_populate_recordset(null::queues.task_limit, settings -> 'task_limit') l;
  delete from queues.paused_queue;
  insert into queues.paused_queue
  select q.* from jsonb_populate_recordset(null::queues.paused_queue, settings -> 'paused_queue') q;
  delete from queues.namespace_login;
  insert into queues.namespace_login
  select n.* from jsonb_populate_recordset(null::queues.namespace_login, settings -> 'namespace_login') n;
  perform queues.renew_routes();
  perform queues.take_shard_tokens(settings -> 'access_token');
  perform queues.take_shard_subscriptions(settings -> 'subscription');
end
$$;

-- Returns whether what exists once is in this database: true for the first shard, and for a database without shards.
create or replace function queues.is_first_shard()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select not exists (select from queues.shard s where s.shard_number > 0) $$;

create sequence if not exists queues.task_number as bigint cycle;

do $install$
declare
  _shard constant text := coalesce((select s.shard_number from queues.shard s), 0);
begin
  if pg_catalog.current_setting('server_version_num')::integer >= 180000 then
    execute pg_catalog.replace($function$
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile parallel safe
    as $$
      select pg_catalog.encode(pg_catalog.set_byte(pg_catalog.uuid_send(pg_catalog.uuidv7()), 11, :shard), 'hex')::uuid
    $$
    $function$, ':shard', _shard);
  else
    execute pg_catalog.replace($function$
    create or replace function queues.new_task_id()
    returns uuid
    language sql volatile
    as $$
      select pg_catalog.encode(
        pg_catalog.substring(pg_catalog.int8send(micros / 1000), 3, 6)
        || pg_catalog.substring(pg_catalog.int8send(x'7000'::bigint | ((micros % 1000) * 4096 / 1000)), 7, 2)
        || pg_catalog.substring(pg_catalog.int8send(
             (2::bigint << 62) | ((pg_catalog.nextval('queues.task_number') & 262143) << 44)
             | (:shard::bigint << 32)), 1, 4)
        || pg_catalog.substring(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()), 13, 4), 'hex')::uuid
      from (select (pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint as micros) t
    $$
    $function$, ':shard', _shard);
  end if;
end
$install$;

comment on function queues.new_task_id() is
  'Returns a UUIDv7 that grows from call to call within a session, so that tasks of one batch keep their order.';

-- Returns the id of the nth task of a batch: the id of the batch with its last 24 bits counting up. Only for calls of
-- the release before that a migration held up: they go on as they began.
create or replace function queues.nth_task_id(first_id uuid, n bigint)
returns uuid
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select (left(first_id::text, 30) || lpad(to_hex(n), 6, '0'))::uuid $$;
