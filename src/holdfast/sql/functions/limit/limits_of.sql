-- Returns the limits that apply to tasks of this queue and type, and to a concurrency key if one is given: how many
-- may run, how many run, when a rate allows the next one (null if now), and the row of queues.limit_lock. A key counts
-- per type and lets one task run at a time, unless a limit of its queue or type sets another number or scope.
-- Internal.
create or replace function queues.limits_of(
  queue text, type text, namespace text, concurrency_key text, now timestamptz)
returns table (
  subject text, name text, concurrency_key text, max_running integer, running integer, refills_in interval,
  lock integer)
language sql stable rows 2
set search_path = pg_catalog, pg_temp
as $$
  with limits as materialized (
    select t from queues.task_limit t
    where t.subject = 'queue' and t.name = limits_of.queue or t.subject = 'type' and t.name = limits_of.type)
  select (l.t).subject, (l.t).name, '', (l.t).max_running, (
      select count(*)::integer from queues.lane n join queues.lease e on e.lane_id = n.lane_id
      where case (l.t).subject when 'queue' then n.queue else n.type end = (l.t).name),
    -- One millisecond more, to compensate for rounding.
    case when (l.t).rate is not null and queues.tokens_at(l.t, limits_of.now) < 1 then
      (1 - queues.tokens_at(l.t, limits_of.now)) * (l.t).per / (l.t).rate + interval '1 millisecond' end,
    queues.limit_lock_of((l.t).subject, (l.t).name)
  from limits l where (l.t).max_running is not null or (l.t).rate is not null
  union all
  select k.subject, k.name, limits_of.concurrency_key, k.per_key, (
      select count(*)::integer from queues.lease e join queues.task t on t.task_id = e.task_id
      where e.concurrency_key = queues.qualified_key(limits_of.namespace, limits_of.concurrency_key)
        and case k.subject when 'queue' then t.queue else t.type end = k.name),
    null, queues.limit_lock_of('key', queues.qualified_key(limits_of.namespace, limits_of.concurrency_key))
  from (
    select (l.t).subject, (l.t).name, (l.t).per_key from limits l where (l.t).per_key is not null
    union all
    select 'type', limits_of.type, 1 where not exists (select from limits l where (l.t).per_key is not null)) k
  where limits_of.concurrency_key is not null
$$;

comment on function queues.limits_of(text, text, text, text, timestamptz) is
  'Returns the limits that apply to tasks of this queue and type, and to a concurrency key if one is given.';
