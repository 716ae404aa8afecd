-- What people read about access to the HTTP server.

-- The access tokens of the HTTP server, without their hashes.
create or replace view queues.access_token_status with (security_barrier) as
select t.token_id, t.name, t.namespace, t.scopes, t.created_at, t.created_by, t.expires_at, t.last_used_at,
  t.revoked_at, t.revoked_by, t.revoked_at is null and t.expires_at > queues.clock() as good,
  (select pg_catalog.count(*) from queues.access_session s
   where s.token_id = t.token_id and least(s.expires_at, t.expires_at) > queues.clock()) as sessions
from queues.access_token t;

comment on view queues.access_token_status is 'The access tokens of the HTTP server, without their hashes.';

-- The valid tokens of each namespace. Internal: part of namespace_member.
create or replace view queues.namespace_token as
select t.namespace, t.name, t.created_at as added_at, t.created_by as added_by
from queues.access_token t where t.revoked_at is null and t.expires_at > queues.clock();

comment on view queues.namespace_token is 'The valid tokens of each namespace.';
