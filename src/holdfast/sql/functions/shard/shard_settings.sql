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
    'access_token', (select coalesce(jsonb_agg(to_jsonb(t)), '[]') from queues.access_token t),
    'subscription',
    (select coalesce(jsonb_agg(to_jsonb(s)), '[]') from queues.subscription s where s.removed_at is null))
$$;

comment on function queues.shard_settings() is
  'Returns what an operator has set in this database, for a new shard.';
