-- What should be the same on every shard, as text.
select 'subscription' as what, pg_catalog.format('%s to %s %s', o.name, o.sink, o.target) as fact
from queues.outbox_status o;
