-- Shards: which of several databases this one is, and what a new one takes from the first.
-- Invariant: the number of a shard never changes, because the ids of its tasks carry it, and neither does the number of
-- shards that keys are spread over. Only the first may have tasks before it is numbered. What may exist once, such as
-- schedules, is on the first.
-- Lock order: the row of this shard; or the settings, limits, policies, pauses, namespaces, tokens and subscriptions
-- that a new shard takes over. Both wait.
-- At the same time: only the owner numbers a shard, when it installs or adds one. If two sessions do so at once, the
-- unique index lets one of them through, and the other one fails. Shards share no transaction: what an operator sets
-- reaches each of them separately.

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
-- Internal.
create or replace function queues.is_first_shard()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select not exists (select from queues.shard s where s.shard_number > 0) $$;
