-- Locks the concurrency keys of these tasks and returns how many more tasks of each may start. A key counts per type
-- and lets one task run at a time, unless limits of the type or queue (per_key) set another number or scope. Appends
-- to the keys that the claim has met before: a name (subject, its name, the key), the running tasks and the room.
-- Returns for each task the positions of its keys (null if another claim counts them), and the order in which tasks
-- get their turn: by priority, then those whose key has fewer running tasks first.
-- Internal: called by lock_within_limits. Locks: keys, without waiting.
create or replace function queues.rooms_of_keys(
  inout names text[], inout running integer[], inout rooms integer[], queues text[], types text[], keys text[],
  lanes integer[], priorities integer[], out of_type integer[], out of_queue integer[], out turns integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held constant integer[] := queues.hold_limits(
    array(select distinct queues.limit_lock_of('key', k) from unnest(keys) k where k is not null), 1);
  _new record;
begin
  with met as materialized (
    select m.n::integer as n, m.queue, m.type, m.key, m.lane
    from unnest(queues, types, keys, lanes) with ordinality m(queue, type, key, lane, n)),
  counted as materialized (
    select m.n, 'type' as subject, m.type as name, m.key, coalesce(t.per_key, 1) as most
    from met m
    left join queues.task_limit t on t.subject = 'type' and t.name = m.type
    left join queues.task_limit q on q.subject = 'queue' and q.name = m.queue
    where queues.limit_lock_of('key', m.key) = any (_held) and (t.per_key is not null or q.per_key is null)
    union all
    select m.n, 'queue', m.queue, m.key, q.per_key
    from met m join queues.task_limit q on q.subject = 'queue' and q.name = m.queue
    where queues.limit_lock_of('key', m.key) = any (_held) and q.per_key is not null),
  room as materialized (
    select c.subject, c.name, c.key, c.most, now.running, known.n is null as is_new,
      format('%s %s %s', c.subject, c.name, c.key) as id,
      coalesce(known.n, cardinality(names) + row_number() over (partition by known.n is null))::integer as n
    from (select distinct c.subject, c.name, c.key, c.most from counted c) c
    left join unnest(names) with ordinality known(id, n) on known.id = format('%s %s %s', c.subject, c.name, c.key)
    cross join lateral (
      select count(*)::integer as running from queues.lease e
      where e.concurrency_key = c.key and (
        select case c.subject when 'type' then t.type else t.queue end from queues.task t
        where t.task_id = e.task_id) = c.name) now),
  limited as materialized (
    select c.n, max(r.n) filter (where c.subject = 'type') as of_type,
      max(r.n) filter (where c.subject = 'queue') as of_queue, max(r.running) as running
    from counted c join room r on r.subject = c.subject and r.name = c.name and r.key = c.key group by c.n),
  turn as (
    select m.n, l.of_type, l.of_queue, priorities[m.lane] as priority, case when m.key is null then 1
      else coalesce(l.running, 0) + row_number() over (partition by m.lane, m.type, m.key order by m.n) end as share
    from met m left join limited l on l.n = m.n)
  select array_agg(t.of_type order by t.n) as of_type, array_agg(t.of_queue order by t.n) as of_queue,
    array_agg(t.n order by t.priority desc, t.share, t.n) as turns,
    array(select r.id from room r where r.is_new order by r.n) as names,
    array(select r.running from room r where r.is_new order by r.n) as running,
    array(select r.most - r.running from room r where r.is_new order by r.n) as rooms
  into _new from turn t;
  names := names || _new.names;
  running := running || _new.running;
  rooms := rooms || _new.rooms;
  of_type := _new.of_type;
  of_queue := _new.of_queue;
  turns := _new.turns;
end
$$;

comment on function queues.rooms_of_keys(
  text[], integer[], integer[], text[], text[], text[], integer[], integer[]) is
  'Locks the concurrency keys of these tasks and returns how many more tasks of each may start.';
