-- Which logins and tokens use which namespace. Shows logins that were assigned to a namespace, and tokens. A login that
-- is not listed uses the namespace of its own name. A session that may neither read all tasks nor administer sees the
-- members of its own namespace.
create or replace view queues.namespace_member with (security_barrier) as
select m.namespace, m.kind, m.name, m.added_at, m.added_by
from (
  select n.namespace, 'login' as kind, n.login as name, n.added_at, n.added_by from queues.namespace_login n
  union all
  select t.namespace, 'token', t.name, t.created_at, t.created_by
  from queues.access_token t where t.revoked_at is null and t.expires_at > queues.clock()) m
where (select queues.may_read_all()) or (select queues.has_role('owner'))
   or m.namespace = (select queues.namespace());

comment on view queues.namespace_member is 'Which logins and tokens use which namespace.';
