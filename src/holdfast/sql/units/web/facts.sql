-- What should be the same on every shard, as text. Tokens are compared by what they allow.
select 'access token' as what, pg_catalog.format('token %s %s', t.token_id, t.name) as fact
from queues.access_token_status t where t.good;
