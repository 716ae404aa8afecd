-- An error is written with its group. Before, the groups and their counts had tables of their own.

-- Facts are rewritten here. The functions of this release put the trigger back.
drop trigger if exists removed_by_retention_only on queues.error;
drop trigger if exists append_only on queues.error;

alter table queues.error add column error_group uuid;

-- As many as are counted. Older ones stay without a group.
update queues.error e
set error_group = (pg_catalog.left(pg_catalog.md5(t.type), 8) || pg_catalog.left(pg_catalog.md5(
  pg_catalog.concat_ws(e'\x1f', e.kind, coalesce(e.detail ->> 'exception', ''), queues.title_of_error(e.message))),
  24))::uuid
from queues.task t
where t.task_id = e.task_id and not pg_catalog.starts_with(e.kind, 'killed_on_') and e.kind <> 'cancelled_by_handler'
  and e.error_id = any (array(select n.error_id from queues.error n order by n.error_id desc limit 50000));

create index errors_to_group on queues.error (occurred_at) include (error_group, error_id, retry_at)
  where error_group is not null;
drop table queues.error_count, queues.error_gap, queues.error_group, queues.error_progress;
alter type queues.wanted_text drop attribute type, alter attribute error_group type uuid;
