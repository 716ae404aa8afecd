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
  -- The first shard numbers tokens for all of them.
  delete from queues.access_token;
  insert into queues.access_token overriding system value
  select t.* from jsonb_populate_recordset(null::queues.access_token, settings -> 'access_token') t;
  -- Subscriptions have ids of their own on each shard, and a breaker.
  perform queues.unsubscribe(s.name) from queues.subscription s where s.removed_at is null;
  perform queues.subscribe(s.name, s.sink, s.target, s.event_types, s.type_prefixes, s.options, s.secrets,
    s.max_attempts)
  from jsonb_populate_recordset(null::queues.subscription, settings -> 'subscription') s;
  update queues.subscription o
  set paused_at = s.paused_at, paused_by = s.paused_by, pause_reason = s.pause_reason
  from jsonb_populate_recordset(null::queues.subscription, settings -> 'subscription') s
  where s.name = o.name and o.removed_at is null and s.paused_at is not null;
end
$$;

comment on function queues.take_shard_settings(jsonb) is
  'Sets in an empty database what an operator has set in another one.';
