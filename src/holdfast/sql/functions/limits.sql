-- Limits: how many tasks of a queue, a type or a concurrency key may run at once, and how many may start per period.
-- Invariant: a claim counts the running tasks of a limit or key in queues.lease while it holds its row of
-- queues.limit_lock, until its commit; so no two claims count the same room. A task whose key is full is moved to the
-- lane of the key, which claims do not read, only while the claim holds the leases of all running tasks of that key and
-- marks them as awaited.
-- Lock order: a claim: limits, ready rows, keys, then leases of full keys; it retries limits for some milliseconds and
-- skips everything else. To change a limit: its row of queues.limit_lock, for at most five seconds, then the limit,
-- then leases and ready rows, skipping.
-- At the same time: the end of a task with an awaited lease comes before the mark, and then the waiting task stays
-- where claims read it; or it gets busy; or it comes later, sees the mark and brings the task back. If a transaction
-- held that task and then rolled back, tidy_lanes brings it back. Tasks of a claim that did not know a new limit are
-- counted afterwards, by count_running.
-- Explained in docs/design/claims.md.

-- Returns how many tasks a rate allows to start at a given time: the rest of the tokens and those added since. A full
-- bucket contains the tokens of one period.
create or replace function queues.tokens_at(given queues.task_limit, at timestamptz)
returns double precision
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select least(given.rate, given.tokens
    + greatest(0, extract(epoch from at - given.counted_at)::double precision) * given.rate
      / extract(epoch from given.per)::double precision)
$$;

-- Removes the limit of a queue or type and returns whether it existed. Running tasks then count under the remaining
-- limits, such as one task at a time per concurrency key.
-- For holdfast_operator. Locks: the limit's row of queues.limit_lock, then the limit; waits for at most five seconds.
create or replace function queues.drop_limit(subject text, name text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.hold_limit(subject, name);
  delete from queues.task_limit t where t.subject = drop_limit.subject and t.name = drop_limit.name;
  if not found then
    return false;
  end if;
  perform queues.apply_limit(subject, name);
  return true;
end
$$;

-- Locks a limit against claims until the transaction ends, waiting for at most about five seconds.
-- Internal: called by set_limit and drop_limit. Locks: the row of queues.limit_lock.
create or replace function queues.hold_limit(subject text, name text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lock constant integer := queues.limit_lock_of(subject, name);
begin
  for _try in 1..500 loop
    perform from queues.limit_lock k where k.number = _lock for update skip locked;
    if found then
      return;
    end if;
    perform pg_sleep(0.01);
  end loop;
  raise exception using errcode = 'QF503',
    message = format('the limit of %s %s cannot be changed now: %s', subject, name,
      coalesce((
        select format('session %s of login %s has claimed under it, or changed it, in a transaction that is open',
          h.pid, h.login)
        from queues.held_limit_locks(queues.clock()) h where h.lock = _lock limit 1), 'others claim under it')),
    hint = 'Try again once that transaction has ended.';
end
$$;

-- Returns the row of queues.limit_lock for a queue, a type or a concurrency key. If two share a row, claims under one
-- may wait for the other.
create or replace function queues.limit_lock_of(subject text, name text)
returns integer
language sql immutable
as $$ select (pg_catalog.hashtextextended(name, pg_catalog.length(subject)) & 16383)::integer $$;

-- Applies a limit that was set, changed or dropped: running tasks count under it, and tasks that wait for another one
-- of their concurrency key may be claimed if the limit now allows it.
-- Internal: called by set_limit and drop_limit. Locks: leases and ready rows, without waiting.
create or replace function queues.apply_limit(subject text, name text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (
    select from queues.task_limit t
    where t.subject = apply_limit.subject and t.name = apply_limit.name and t.max_running is not null)
  then
    perform queues.count_running(subject, name);
  end if;
  perform queues.bring_back(array(
    select r.task_id from queues.lane l join queues.ready r on r.lane_id = l.lane_id
    where l.concurrency_key > ''
      and case apply_limit.subject when 'queue' then l.queue else l.type end = apply_limit.name));
end
$$;

-- Lets running tasks of a queue or type count under its limit, although they were claimed before it was set. Skips
-- those that another transaction holds. A task in a lane that types share moves to the lane of its type.
-- Internal. Locks: leases, without waiting.
create or replace function queues.count_running(subject text, name text)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with task as materialized (
    select e.task_id, t.queue, t.type, t.priority, t.namespace,
      case when t.concurrency_key is not null then '' end as key
    from queues.lease e
    join queues.lane l on l.lane_id = e.lane_id
    -- Looked up one by one: a claim has turned nested loops off, and would read all tasks.
    cross join lateral (select t.* from queues.task t where t.task_id = e.task_id offset 0) t
    where case count_running.subject when 'queue' then l.queue = count_running.name and e.limited is not true
        else l.type = count_running.name and e.limited is not true or l.type = '' end
      and (count_running.subject = 'queue' or t.type = count_running.name)
    for no key update of e skip locked)
  update queues.lease e
  set limited = true, lane_id = case when count_running.subject = 'queue' then e.lane_id
    else queues.own_lane(t.queue, t.type, t.priority, t.key, t.namespace) end
  from task t where e.task_id = t.task_id
$$;

-- Lets tasks that wait for the end of another one of their concurrency key be claimed: as many of each lane of the key
-- as have ended. Runs after the statement that removed a lease or a waiting task, so that it sees what claims have set
-- aside until then. What still may not run is set aside again by the next claim. Rows that another transaction holds
-- are skipped: if it moves or ends the task, it calls this function itself; if not, tidy_lanes does.
-- Internal: called when a lease that is awaited ends, and when a waiting task with a key is removed or moved.
-- Locks: ready rows, without waiting.
create or replace function queues.bring_back(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _places tid[];
  _lanes bigint[];
begin
  with ended as materialized (
    select t.concurrency_key, t.namespace, count(*) as count from queues.task t
    where t.task_id = any (task_ids) and t.concurrency_key is not null group by t.concurrency_key, t.namespace),
  head as materialized (
    select r.place, l.lane_id, l.queue, l.type, l.priority, l.concurrency_key, l.namespace
    from ended e
    join queues.lane l on l.concurrency_key = e.concurrency_key and l.namespace = e.namespace
      and l.concurrency_key > ''
    cross join lateral (
      select r.ctid as place from queues.ready r where r.lane_id = l.lane_id
      order by r.run_at, r.task_id limit e.count for update skip locked) r),
  lane as materialized (
    select d.lane_id, queues.lane_for(d.queue, d.type, d.priority, d.concurrency_key, d.namespace) as back_to
    from (select distinct h.lane_id, h.queue, h.type, h.priority, h.concurrency_key, h.namespace from head h) d)
  select array_agg(h.place), array_agg(l.back_to) into _places, _lanes from head h join lane l on l.lane_id = h.lane_id;
  if _places is not null then
    perform queues.move_ready(_places, null, _lanes);
  end if;
end
$$;

-- Returns concurrency keys whose due tasks wait until a task of the same key ends: how many wait, at most 100 of each
-- key, how many run and the one that was claimed first, and since when the first is due. Looks at no more than 1,000
-- keys.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_waiting_keys(of_queue text default null, max_keys integer default 50)
returns table (
  queue text, namespace text, concurrency_key text, waiting bigint, running bigint, oldest_due timestamptz,
  running_task_id uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform queues.check_number('max_keys', max_keys, 1, 1000);
  return query
  select l.queue, l.namespace, l.concurrency_key, w.waiting,
    (select count(*) from queues.lease e join queues.task t on t.task_id = e.task_id
      where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key) and l.type in ('', t.type)),
    w.oldest_due,
    (select e.task_id from queues.lease e join queues.task t on t.task_id = e.task_id
      where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key) and l.type in ('', t.type)
      order by e.claimed_at, e.task_id limit 1)
  from (
    select l.* from queues.lane l
    where l.concurrency_key > '' and (of_queue is null or l.queue = of_queue) limit 1000) l
  cross join lateral (
    select count(*) as waiting, min(r.run_at) as oldest_due
    from (
      select r.run_at from queues.ready r
      where r.lane_id = l.lane_id and r.run_at <= queues.clock() order by r.run_at, r.task_id limit 100) r) w
  where w.waiting > 0
  order by w.waiting desc, w.oldest_due, l.concurrency_key
  limit max_keys;
end
$$;

-- Returns a concurrency key together with its namespace; null without a key. The length keeps two pairs that read
-- alike apart. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.qualified_key(namespace text, concurrency_key text)
returns text
language sql immutable
as $$ select pg_catalog.octet_length(namespace)::text || ':' || namespace || ':' || concurrency_key $$;

-- Limits the running tasks of a queue or type, in total and per concurrency key, and the rate at which they start.
-- Parameters that are not given are not limited. Running tasks count.
-- For holdfast_operator. Locks: the limit's row of queues.limit_lock, then the limit; waits for at most five seconds.
create or replace function queues.set_limit(
  subject text,
  name text,
  max_running integer default null,
  per_key integer default null,
  rate integer default null,
  per interval default null,
  reason text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  _problem text;
begin
  _problem := case
    when subject is null or subject not in ('queue', 'type')
      then format('subject %s is not one of queue, type', coalesce(to_json(subject)::text, 'null'))
    when num_nonnulls(max_running, per_key, rate) = 0 then 'a limit needs max_running, per_key or rate'
    when max_running < 1 or per_key < 1 or rate < 1 then 'max_running, per_key and rate must be at least 1'
    when (rate is null) <> (per is null) then 'rate and per go together'
    when per < interval '1 millisecond' or per > interval '1 day' then 'per must be between 1 millisecond and 1 day'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem,
      hint = 'To remove a limit, use drop_limit; to stop a queue, pause.';
  end if;
  perform queues.check_name(subject, name);
  reason := left(reason, 2000);
  perform queues.hold_limit(subject, name);
  insert into queues.task_limit as t (
    subject, name, max_running, per_key, rate, per, tokens, counted_at, set_at, set_by, reason)
  values (subject, name, max_running, per_key, rate, per, coalesce(rate, 0), _now, _now, session_user, reason)
  on conflict on constraint one_limit_per_subject do update
  set max_running = excluded.max_running, per_key = excluded.per_key, rate = excluded.rate, per = excluded.per,
    tokens = case when t.rate is null then excluded.tokens else least(excluded.rate, queues.tokens_at(t, _now)) end,
    counted_at = _now, set_at = _now, set_by = excluded.set_by, reason = excluded.reason;

  perform queues.apply_limit(subject, name);
end
$$;

-- Returns which of these ready rows may be set aside until a task of their key ends. Locks the leases of their keys
-- and marks them as awaited until the claim commits. So the end of a task either comes before, and the rows stay where
-- they are, or after, and finds them set aside. "full_by" says which of the names (rooms_of_keys) each row waits for.
-- Internal: called by lock_within_limits, which holds the keys. Locks: leases, without waiting.
create or replace function queues.await_keys(places tid[], full_by integer[], names text[], running integer[])
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _found tid[];
begin
  with name as materialized (
    select f.n, await_keys.running[f.n] as running, split_part(names[f.n], ' ', 1) as subject,
      split_part(names[f.n], ' ', 2) as name, regexp_replace(names[f.n], '^\S+ \S+ ', '') as key
    from (select distinct n from unnest(full_by) n) f),
  locked as materialized (
    select f.n, e.task_id
    from name f
    cross join lateral (
      select e.task_id from queues.lease e
      where e.concurrency_key = f.key and (
        select case f.subject when 'type' then t.type else t.queue end from queues.task t
        where t.task_id = e.task_id) = f.name
      for no key update skip locked) e),
  marked as (
    update queues.lease e set awaited = true
    where e.task_id = any (array(select l.task_id from locked l)) and e.awaited is not true)
  select array(
    select p.place from unnest(places, full_by) p(place, n)
    where p.n in (
      select f.n from name f where f.running = (select count(*) from locked l where l.n = f.n)))
  into _found;
  return _found;
end
$$;

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

-- Locks rows of queues.limit_lock until the transaction ends, and returns those that it got. One claim at a time may
-- count the tasks under a limit or of a concurrency key. Tries as often as given, a millisecond apart; a claim that
-- does not get a lock skips the tasks and tries again soon.
-- Internal: called by lock_within_limits.
create or replace function queues.hold_limits(locks integer[], tries integer)
returns integer[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held integer[];
begin
  -- An older snapshot would not show what other sessions have claimed since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412',
      message = format('limits can be enforced only under read committed, but this transaction is %s',
        current_setting('transaction_isolation')),
      hint = 'Claim in a separate transaction, with the default isolation level.';
  end if;
  for _try in 1..tries loop
    _held := array(select k.number from queues.limit_lock k where k.number = any (locks) for update skip locked);
    exit when cardinality(_held) = cardinality(locks) or _try = tries;
    perform pg_sleep(0.001);
  end loop;
  return _held;
end
$$;

-- Locks the limits of these lanes and returns how many more tasks may start under each, and which apply to each lane.
-- Returns positions in rooms, or null where no limit applies. Nothing may start under a limit that another claim
-- counts.
-- Internal: called by lock_within_limits. Locks: limits.
create or replace function queues.rooms_of_lanes(
  lanes bigint[], due timestamptz, out rooms integer[], out of_queue integer[], out of_type integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held integer[];
begin
  -- Only limits under which a task is due are locked.
  _held := array(
    select distinct queues.limit_lock_of(t.subject, t.name)
    from queues.lane l
    join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type
    where l.lane_id = any (lanes) and (t.max_running is not null or t.rate is not null)
      -- Not exists, which the planner may implement by reading all that is due.
      and (select true from queues.ready r where r.lane_id = l.lane_id and r.run_at <= due
        order by r.lane_id, r.run_at, r.task_id limit 1));
  if _held = '{}' then
    -- A task that is committed from now on waits for the next claim, because its limit is not locked: there is no room.
    rooms := '{0}';
    select array_agg(q.room order by u.n), array_agg(y.room order by u.n)
    into of_queue, of_type
    from unnest(lanes) with ordinality u(lane_id, n)
    left join queues.lane l on l.lane_id = u.lane_id
    left join lateral (
      select 1 as room from queues.task_limit t where t.subject = 'queue' and t.name = l.queue
        and (t.max_running is not null or t.rate is not null)) q on true
    left join lateral (
      select 1 as room from queues.task_limit t where t.subject = 'type' and t.name = l.type
        and (t.max_running is not null or t.rate is not null)) y on true;
    return;
  end if;
  _held := queues.hold_limits(_held, 10);
  -- A claim that was running when a limit was set did not know it.
  perform queues.count_running(t.subject, t.name) from queues.task_limit t
  where t.set_at > due - interval '10 seconds' and t.max_running is not null;

  -- Limits are read after they were locked.
  with room as materialized (
    select t.subject, t.name, row_number() over ()::integer as n,
      case when queues.limit_lock_of(t.subject, t.name) = any (_held) then
        least(t.max_running - running.count, floor(queues.tokens_at(t, due))::integer) else 0 end as room
    from queues.task_limit t
    left join lateral (
      select count(*)::integer as count from queues.lease e
      where e.limited and e.lane_id = any (case t.subject
        when 'queue' then array(
          select l.lane_id from queues.lane l where l.queue = t.name and coalesce(l.concurrency_key, '') = '')
        else array(
          select l.lane_id from queues.lane l where l.type = t.name and coalesce(l.concurrency_key, '') = '') end)
      ) running on t.max_running is not null
    where (t.max_running is not null or t.rate is not null) and exists (
      select from queues.lane l where l.lane_id = any (lanes)
        and (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)))
  select array(select r.room from room r order by r.n), array_agg(q.n order by u.n), array_agg(y.n order by u.n)
  into rooms, of_queue, of_type
  from unnest(lanes) with ordinality u(lane_id, n)
  -- Not an inner join, which would shift the positions if a lane is removed meanwhile.
  left join queues.lane l on l.lane_id = u.lane_id and l.lane_id = any (lanes)
  left join room q on q.subject = 'queue' and q.name = l.queue
  left join room y on y.subject = 'type' and y.name = l.type;
end
$$;

-- Moves waiting tasks to the lane of their concurrency key, which claims do not read, until bring_back; or, if not, to
-- the lane of their type.
-- Internal: called by claim, which holds the ready rows.
create or replace function queues.set_aside(places tid[], until_key_is_free boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _places tid[];
  _lanes bigint[];
begin
  with waiting as materialized (
    select r.ctid as place, r.task_id from queues.ready r where r.ctid = any (places)),
  task as materialized (
    select w.place, t.queue, t.type, t.priority, t.namespace,
      case when until_key_is_free or t.concurrency_key is null then t.concurrency_key else '' end as concurrency_key
    from waiting w join queues.task t on t.task_id = w.task_id
    where t.task_id = any (array(select task_id from waiting))),
  lane as materialized (
    select d.*, queues.own_lane(d.queue, d.type, d.priority, d.concurrency_key, d.namespace) as lane_id
    from (select distinct t.queue, t.type, t.priority, t.concurrency_key, t.namespace from task t) d)
  select array_agg(t.place), array_agg(l.lane_id) into _places, _lanes
  from task t join lane l on l.queue = t.queue and l.type = t.type and l.priority = t.priority
    and coalesce(l.concurrency_key, '') = coalesce(t.concurrency_key, '') and l.namespace = t.namespace;
  perform queues.move_ready(_places, null, _lanes);
end
$$;

-- Charges the rates of these lanes for the tasks that start now.
-- Internal: called by claim, which holds the limits of these lanes.
create or replace function queues.spend_rate(places tid[], lanes bigint[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update queues.task_limit t
  set tokens = queues.tokens_at(t, spend_rate.now) - spent.count, counted_at = spend_rate.now
  from (
    select subject.subject, subject.name, sum(started.count) as count
    from (
      select r.lane_id, count(*) as count from queues.ready r
      where r.ctid = any (places) and r.lane_id = any (lanes) group by r.lane_id) started
    join queues.lane l on l.lane_id = started.lane_id
    cross join lateral (values ('queue', l.queue), ('type', l.type)) subject(subject, name)
    where l.lane_id = any (lanes)
    group by subject.subject, subject.name) spent
  where t.subject = spent.subject and t.name = spent.name and t.rate is not null;
end
$$;

-- Returns the rows of queues.limit_lock that other open transactions hold, and for how long, if known.
create or replace function queues.held_limit_locks(now timestamptz)
returns table (lock integer, pid integer, login text, seconds double precision)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select k.number, a.pid, a.usename::text, coalesce(extract(epoch from now - a.xact_start)::double precision,
    queues.snapshot_age(age(k.xmax)::bigint, now))
  from queues.limit_lock k
  join pg_locks l on l.locktype = 'transactionid' and l.transactionid = k.xmax and l.granted
  join pg_stat_activity a on a.pid = l.pid
  where k.xmax <> '0'::xid and a.pid <> pg_backend_pid() and exists (
    -- Usually none does, and the rows need not be read.
    select from pg_locks t
    where t.locktype = 'relation' and t.relation = 'queues.limit_lock'::regclass and t.pid <> pg_backend_pid())
$$;

-- Returns the limits that apply to tasks of this queue and type, and to a concurrency key if one is given: how many
-- may run, how many run, when a rate allows the next one (null if now), and the row of queues.limit_lock. A key counts
-- per type and lets one task run at a time, unless a limit of its queue or type sets another number or scope.
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
