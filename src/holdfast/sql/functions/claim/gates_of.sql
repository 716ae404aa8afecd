-- What limits each of these lanes: its gates, how many may be behind each at once, how many may start now at its rate, and the limit
-- that covers it. A key without a limit of its queue or type lets one run at a time.
create or replace function queues.gates_of(lanes integer[], now timestamptz)
returns table (lane_id integer, gate text, cover text, max_running integer, may_start integer)
language sql stable rows 10
set search_path = pg_catalog, pg_temp
as $$
  with limits as materialized (
    select l.lane_id, l.concurrency_key, t.subject || ':' || t.name as cover, t.max_running, t.per_key,
      case when t.rate is not null then floor(queues.tokens_at(t, gates_of.now))::integer end as may_start
    from queues.lane l
    join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type
    where l.lane_id = any (lanes))
  select t.lane_id, t.cover, t.cover, t.max_running, t.may_start
  from limits t where t.max_running is not null or t.may_start is not null
  union all
  select t.lane_id, 'key:' || t.cover || ':' || t.concurrency_key, t.cover, t.per_key, null
  from limits t where t.per_key is not null and t.concurrency_key is not null
  union all
  select l.lane_id, 'key:type:' || l.type || ':' || l.concurrency_key, 'type:' || l.type, 1, null
  from queues.lane l
  where l.lane_id = any (lanes) and l.concurrency_key is not null
    and not exists (select from limits t where t.lane_id = l.lane_id and t.per_key is not null)
$$;

comment on function queues.gates_of(integer[], timestamptz) is
  'What limits each of these lanes: its gates, how many may be behind each at once, how many may start now, and the limit that covers it.';
