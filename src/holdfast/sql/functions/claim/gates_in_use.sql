-- Returns the usage of each gate of these lanes: running tasks, whether it is full, and when its rate allows another.
-- Internal.
create or replace function queues.gates_in_use(lanes bigint[], now timestamptz)
returns table (
  lane_id bigint, subject text, name text, namespace text, concurrency_key text, max_running integer, running integer, is_full boolean,
  refills_in interval, lock integer)
language sql stable rows 10
set search_path = pg_catalog, pg_temp
as $$
  select g.lane_id, g.subject, g.name, g.namespace, g.concurrency_key, g.max_running, used.running,
    coalesce(used.running >= g.max_running, false), rate.refills_in, g.lock
  from queues.gates_of(lanes, gates_in_use.now) g
  cross join lateral (
    select count(*)::integer as running from queues.slot s
    where s.subject = g.subject and s.name = g.name and s.namespace = g.namespace and s.concurrency_key = g.concurrency_key
      and exists (select from queues.lease l where l.task_id = s.task_id and l.token = s.token)) used
  left join lateral (
    -- One millisecond more, to compensate for rounding.
    select (1 - queues.tokens_at(t, gates_in_use.now)) * t.per / t.rate + interval '1 millisecond' as refills_in
    from queues.task_limit t
    where g.may_start < 1 and g.concurrency_key = '' and t.subject = g.subject and t.name = g.name) rate on true
$$;

comment on function queues.gates_in_use(bigint[], timestamptz) is
  'Returns the usage of each gate of these lanes: running tasks, whether it is full, and when its rate allows another.';
