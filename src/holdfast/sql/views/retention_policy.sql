-- How long data is kept.
create or replace view queues.retention_policy with (security_barrier) as
select r.status, r.type_prefix, r.keep, r.changed_at, r.changed_by
from queues.retention r;

comment on view queues.retention_policy is 'How long data is kept.';
