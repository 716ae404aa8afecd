-- What should be the same on every shard, as text. Logins are compared by what they allow.
select 'number' as what, pg_catalog.format('%s, number %s', s.shard_name, s.shard_number) as fact
from queues.shard s
union all
select 'keys', pg_catalog.format('keys on %s shards', s.key_shards) from queues.shard s
union all
select 'release', pg_catalog.format('version %s of the schema, %s', i.version, pg_catalog.left(i.digest, 12))
from queues.installation i
union all
select 'unit', u.unit from queues.unit u where u.installed
union all
select 'setting', pg_catalog.format('%s = %s', s.name, s.value) from queues.setting s
union all
select 'limit', pg_catalog.format('the limit of %s %s: %s', l.subject, l.name, pg_catalog.concat_ws(', ',
  'running ' || l.max_running,
  'per key ' || l.per_key, 'rate ' || l.rate || ' per ' || l.per)) from queues.limit_status l
union all
select 'retention', pg_catalog.format('%s of types %s kept for %s', r.status,
  coalesce(nullif(r.type_prefix, ''), 'of any kind'), r.keep)
from queues.retention_policy r
union all
select 'paused queue', q.queue from queues.queue_status q where q.paused_at is not null
union all
select 'namespace', pg_catalog.format('login %s in %s', n.name, n.namespace)
from queues.namespace_member n where n.kind = 'login'
union all
select 'schedule', pg_catalog.format('schedule %s of namespace %s, which does not fire there', s.name, s.namespace)
from queues.schedule s where not queues.is_first_shard();
