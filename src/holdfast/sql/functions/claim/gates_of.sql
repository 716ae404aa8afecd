-- Returns the gates that limit each of these lanes, with their capacity and the lock to hold while counting. For each
-- gate: how many tasks may run at once, how many may start now at its rate, and its row of queues.limit_lock. A gate is
-- a queue or type, or a concurrency key within one of them. A key belongs to a namespace, counts per type and lets one
-- task run at a time, unless a limit of its queue or type sets another number or scope.
-- Internal.
create or replace function queues.gates_of(lanes bigint[], now timestamptz)
returns table (
  lane_id bigint, subject text, name text, namespace text, concurrency_key text, max_running integer, may_start integer, lock integer)
language sql stable rows 10
set search_path = pg_catalog, pg_temp
as $$
  with limits as materialized (
    select l.lane_id, l.namespace, l.concurrency_key, t.subject, t.name, t.max_running, t.per_key,
      case when t.rate is not null then floor(queues.tokens_at(t, gates_of.now))::integer end as may_start
    from queues.lane l
    join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type
    where l.lane_id = any (lanes)),
  gate as (
    select t.lane_id, t.subject, t.name, '' as namespace, '' as concurrency_key, t.max_running, t.may_start
    from limits t where t.max_running is not null or t.may_start is not null
    union all
    select t.lane_id, t.subject, t.name, t.namespace, t.concurrency_key, t.per_key, null
    from limits t where t.per_key is not null and t.concurrency_key is not null
    union all
    select l.lane_id, 'type', l.type, l.namespace, l.concurrency_key, 1, null
    from queues.lane l
    where l.lane_id = any (lanes) and l.concurrency_key is not null
      and not exists (select from limits t where t.lane_id = l.lane_id and t.per_key is not null))
  select g.lane_id, g.subject, g.name, g.namespace, g.concurrency_key, g.max_running, g.may_start, queues.limit_lock_of(g.subject, g.name)
  from gate g
$$;

comment on function queues.gates_of(bigint[], timestamptz) is
  'Returns the gates that limit each of these lanes, with their capacity and the lock to hold while counting.';
