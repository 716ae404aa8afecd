-- What people read about tasks: searches, pages and the timeline of a run. It is installed after the views, because
-- some functions return their rows.
-- Invariant: a session gets the tasks of its namespace, or all if it may read all. A search reads a bounded number of
-- rows, whichever filters are given, and says where the next page begins.
-- Lock order: none. All functions are stable and read in one snapshot.
-- At the same time: pages go by task_id, so tasks that are enqueued or end between two pages neither shift the next
-- page nor appear twice.

-- Returns how many tasks have each status, of those that match the filters of find_tasks. Examines the newest 10,000
-- tasks of each status; with a filter 2,000, or 500 if it has to read documents or errors. "more" says that there are
-- others.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.count_tasks(
  queue text default null, type_prefix text default null, since timestamptz default null, words text default null,
  error_group text default null, payload_path text default null, search_errors boolean default true)
returns table (status text, tasks bigint, more boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _wanted constant queues.wanted_text := queues.check_search(words, error_group, payload_path, search_errors);
  _all constant boolean := coalesce(queue, type_prefix, since::text, words, error_group, payload_path, _namespace)
    is null;
  _most constant integer := case when _all then 10000
    when coalesce(words, error_group, payload_path) is null then 2000 else 500 end;
begin
  return query
  select s.status, count(*) filter (where s.matches), bool_or(s.n > _most)
  from (
    -- Not exists, for which PostgreSQL may read all tasks into a hash table.
    select s.status, s.n, s.n <= _most and (_all or (
      select true from queues.task t where t.task_id = s.task_id
        and queues.matches(t, count_tasks.queue, type_prefix, since, _namespace, null, _wanted) limit 1)) as matches
    from (
      select queues.status_of(null, null, null, r.attempt, r.run_at, _now, (
        select true from queues.wait w where w.task_id = r.task_id limit 1)) as status, r.task_id, r.n
      from (
        select r.*, row_number() over (order by r.task_id desc) as n
        from queues.ready r order by r.task_id desc limit _most + 1) r
      union all
      select case when l.started_at is null then 'claimed' else 'running' end, l.task_id, l.n
      from (
        select l.*, row_number() over (order by l.task_id desc) as n
        from queues.lease l order by l.task_id desc limit _most + 1) l
      union all
      select o.status, o.task_id, o.n
      from (values ('failed'), ('dead_letter'), ('cancelled')) v(status)
      cross join lateral (
        select o.status, o.task_id, row_number() over (order by o.task_id desc) as n
        from queues.outcome o where o.status = v.status and o.status <> 'succeeded'
        order by o.task_id desc limit _most + 1) o
      union all
      select 'succeeded', o.task_id, o.n
      from (
        select o.status, o.task_id, row_number() over (order by o.task_id desc) as n
        from queues.outcome o order by o.task_id desc limit _most + 1) o
      where o.status = 'succeeded' or o.n > _most) s) s
  group by s.status;
end
$$;

-- Returns the parts of a search as matches needs them, or null if there are none. Refuses a path that is not valid.
create or replace function queues.check_search(
  words text, error_group text, payload_path text, search_errors boolean)
returns queues.wanted_text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _wanted queues.wanted_text;
begin
  if coalesce(words, error_group, payload_path) is null then
    return null;
  elsif length(words) not between 1 and 500 then
    raise exception using errcode = 'QF400', message = 'words must be 1 to 500 characters';
  elsif length(payload_path) not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'payload_path must be 1 to 1000 characters';
  elsif error_group !~ '^[0-9a-f]{32}$' then
    raise exception using errcode = 'QF400',
      message = format('error_group %s is not 32 hexadecimal digits', to_json(error_group)),
      hint = 'Take it from queues.list_error_groups.';
  end if;
  _wanted.words := case when words ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then words::uuid::text
    else lower(words) end;
  _wanted.error_group := error_group::uuid;
  _wanted.search_errors := coalesce(search_errors, true);
  begin
    _wanted.path := payload_path::jsonpath;
  exception when others then
    raise exception using errcode = 'QF400', message = format('payload_path is not a JSON path: %s', sqlerrm),
      hint = 'For example: $.invoice ? (@ == 7)';
  end;
  return _wanted;
end
$$;

-- Returns the ids of one page of tasks, newest first, that match all filters and come before the given task_id, and
-- where the next page begins: its before, or null at the end. Examines at most 50,000 tasks, or max_examined, so a page
-- may be short, or even empty, although others follow. The filters words, error_group and payload_path have to read
-- documents or errors: with them, it examines at most 10,000. Starts from the table or index that the filters select,
-- so that a rare status is found without reading common ones. A task whose id or key is exactly words is found however
-- old it is, and one whose id ends with these eight or more digits among the newest 200,000.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.find_tasks(
  status text default null,
  queue text default null,
  type_prefix text default null,
  since timestamptz default null,
  before uuid default null,
  max_tasks integer default 50,
  spec_hash text default null,
  words text default null,
  error_group text default null,
  payload_path text default null,
  search_errors boolean default true,
  max_examined integer default 50000,
  out task_ids uuid[],
  out next uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _most constant integer := least(max_examined,
    case when coalesce(words, error_group, payload_path) is null then 50000 else 10000 end);
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _before constant uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  _hash bytea;
  _wanted queues.wanted_text;
  _exact uuid[];
  _size integer;
  _end uuid;
begin
  perform queues.check_number('max_tasks', max_tasks, 1, 10000);
  if max_examined is null or max_examined < 1 then
    raise exception using errcode = 'QF400', message = 'max_examined must be at least 1';
  elsif status not in ('scheduled', 'suspended', 'pending', 'retrying', 'claimed', 'running', 'succeeded', 'failed',
      'dead_letter', 'cancelled') then
    raise exception using errcode = 'QF400', message = format('status %s is unknown', to_json(status)),
      hint = 'Allowed: scheduled, suspended, pending, retrying, claimed, running, succeeded, failed, dead_letter, '
        'cancelled.';
  elsif spec_hash !~ '^[0-9a-fA-F]{64}$' then
    raise exception using errcode = 'QF400',
      message = format('spec_hash %s is not 64 hexadecimal digits', to_json(spec_hash));
  end if;
  _hash := decode(spec_hash, 'hex');
  _wanted := queues.check_search(words, error_group, payload_path, search_errors);

  -- One more than requested, to find out whether there is another page.
  if status = 'suspended' then
    task_ids := array(
      select w.task_id
      from (
        select distinct on (w.task_id) w.task_id from queues.wait w
        where w.task_id < _before order by w.task_id desc limit _most) w
      cross join lateral (select r.attempt, r.run_at from queues.ready r where r.task_id = w.task_id offset 0) r
      cross join lateral (select * from queues.task t where t.task_id = w.task_id offset 0) t
      where queues.status_of(null, null, null, r.attempt, r.run_at, _now, true) = 'suspended'
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by w.task_id desc limit max_tasks + 1);
    next := (
      select distinct on (w.task_id) w.task_id from queues.wait w
      where w.task_id < _before and cardinality(task_ids) <= max_tasks
      order by w.task_id desc offset _most - 1 limit 1);
  elsif status in ('scheduled', 'pending', 'retrying') then
    task_ids := array(
      select r.task_id
      from (select r.* from queues.ready r where r.task_id < _before order by r.task_id desc limit _most) r
      cross join lateral (select * from queues.task t where t.task_id = r.task_id offset 0) t
      where queues.status_of(null, null, null, r.attempt, r.run_at, _now, (
        select true from queues.wait w where w.task_id = r.task_id limit 1)) = find_tasks.status
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by r.task_id desc limit max_tasks + 1);
    next := (
      select r.task_id from queues.ready r where r.task_id < _before and cardinality(task_ids) <= max_tasks
      order by r.task_id desc offset _most - 1 limit 1);
  elsif status in ('claimed', 'running') then
    task_ids := array(
      select l.task_id
      from (select l.* from queues.lease l where l.task_id < _before order by l.task_id desc limit _most) l
      cross join lateral (select * from queues.task t where t.task_id = l.task_id offset 0) t
      where (l.started_at is not null) = (find_tasks.status = 'running')
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by l.task_id desc limit max_tasks + 1);
    next := (
      select l.task_id from queues.lease l where l.task_id < _before and cardinality(task_ids) <= max_tasks
      order by l.task_id desc offset _most - 1 limit 1);
  elsif status in ('failed', 'dead_letter', 'cancelled') then
    task_ids := array(
      select o.task_id
      from (
        select o.task_id from queues.outcome o
        where o.status = find_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        order by o.task_id desc limit _most) o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by o.task_id desc limit max_tasks + 1);
    next := (
      select o.task_id from queues.outcome o
      where o.status = find_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        and cardinality(task_ids) <= max_tasks
      order by o.task_id desc offset _most - 1 limit 1);
  elsif status = 'succeeded' then
    task_ids := array(
      select o.task_id
      from (
        select o.task_id, o.status from queues.outcome o
        where o.task_id < _before order by o.task_id desc limit _most) o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = find_tasks.status
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by o.task_id desc limit max_tasks + 1);
    next := (
      select o.task_id from queues.outcome o where o.task_id < _before and cardinality(task_ids) <= max_tasks
      order by o.task_id desc offset _most - 1 limit 1);
  else
    -- First a few, which is enough for most pages, then all others: a range of ids is read without building whole rows.
    task_ids := '{}';
    foreach _size in array array[least(_most, 1000), _most - least(_most, 1000)] loop
      exit when cardinality(task_ids) > max_tasks or _size = 0;
      _end := (
        select t.task_id from queues.task t where t.task_id < coalesce(next, _before)
        order by t.task_id desc offset _size - 1 limit 1);
      task_ids := task_ids || array(
        select t.task_id from queues.task t
        where t.task_id < coalesce(next, _before)
          and t.task_id >= coalesce(_end, '00000000-0000-0000-0000-000000000000')
          and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
        order by t.task_id desc limit max_tasks + 1 - cardinality(task_ids));
      next := _end;
      exit when next is null;
    end loop;
  end if;
  if cardinality(task_ids) > max_tasks then
    task_ids := task_ids[:max_tasks];
    next := task_ids[max_tasks];
  end if;
  if words is not null and before is null then
    _wanted.words := null;
    _exact := array(
      select s.task_id from queues.task_status s
      where s.task_id = any (queues.tasks_named(words))
        and (find_tasks.status is null or s.status = find_tasks.status)
        and exists (
          select from queues.task t where t.task_id = s.task_id
            and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)));
    if _exact <> '{}' then
      task_ids := array(select distinct id from unnest(task_ids || _exact) id order by id desc);
    end if;
  end if;
end
$$;

-- Returns the tasks whose id or idempotency key is exactly this text, of at most 10,000 types that have keys, or whose
-- id ends with it: with eight digits or more, among the newest 200,000.
create or replace function queues.tasks_named(words text)
returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- The types that have keys, with one index lookup for each.
  with recursive keyed(type, n) as (
    (select k.type, 1 from queues.task_key k order by k.type limit 1)
    union all
    select (select k.type from queues.task_key k where k.type > keyed.type order by k.type limit 1), keyed.n + 1
    from keyed where keyed.type is not null and keyed.n < 10000)
  select array(
    select words::uuid where words ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$'
    union all
    (select k.task_id from keyed
     join queues.task_key k on k.type = keyed.type and k.idempotency_key = words
     limit 100)
    union all
    (select t.task_id from (select t.task_id from queues.task t order by t.task_id desc limit 200000) t
     where words ~* '^([0-9a-f]{8,12}|[0-9a-f-]{1,23}-[0-9a-f]{12})$'
       and right(t.task_id::text, length(words)) = lower(words)
     limit 100))
$$;

-- Returns one page of tasks, newest first, that match all filters and come before the given task_id. Examines at most
-- 50,000 tasks: find_tasks also returns where the next page begins.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.list_tasks(
  status text default null,
  queue text default null,
  type_prefix text default null,
  since timestamptz default null,
  before uuid default null,
  max_tasks integer default 50,
  spec_hash text default null,
  words text default null,
  error_group text default null,
  payload_path text default null,
  search_errors boolean default true)
returns setof queues.task_status
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _ids constant uuid[] := (
    select f.task_ids from queues.find_tasks(
      list_tasks.status, list_tasks.queue, type_prefix, since, before, max_tasks, list_tasks.spec_hash, words,
      error_group, payload_path, search_errors) f);
begin
  return query select s.* from queues.task_status s where s.task_id = any (_ids) order by s.task_id desc;
end
$$;

-- Returns what a task belongs to and what it came from: the processes (process), the tasks that come after its batch
-- (batch), the tasks before it (members), the run that has started it (parent), what it was forked or replayed from
-- (fork_of, replay_of), and its schedule (schedule). Of a batch, it says how many tasks there are and how many have
-- ended; it counts the first 2,000. A task names its process in its payload, as the functions of the process write it.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.related_to(task_id uuid)
returns table (
  relation text, name text, related_id uuid, process_id bigint, type text, status text, tasks integer, ended integer)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _task record;
begin
  select t.task_id, t.type, t.namespace, t.payload, t.metadata into _task
  from queues.task_status t where t.task_id = related_to.task_id;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
  return query
  with named as (
    -- Anybody who enqueues may write anything there.
    select m.relation, null::text as name, case when _task.metadata ->> m.relation
      ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (_task.metadata ->> m.relation)::uuid end as related_id
    from unnest(array['fork_of', 'replay_of']) m(relation)
    union all
    (select 'parent', c.step, c.parent_id from queues.child c
    where c.child_id = _task.task_id and c.step <> '' order by c.parent_id limit 5)
    union all
    (select 'batch', null, c.parent_id from queues.child c
    where c.child_id = _task.task_id and c.step = '' order by c.parent_id limit 5)
    union all
    (select 'members', null, c.parent_id from queues.child c
    where c.parent_id = _task.task_id and c.step = '' limit 1))
  select n.relation, n.name, n.related_id, null::bigint, t.type, t.status, b.tasks, b.ended
  from named n
  cross join lateral (
    select t.type, t.status from queues.task_status t
    where t.task_id = n.related_id offset 0) t
  left join lateral (
    select count(*)::integer as tasks, count(o.task_id)::integer as ended
    from (
      select c.child_id from queues.child c
      where c.parent_id = n.related_id and c.step = '' order by c.number limit 2000) c
    left join queues.outcome o on o.task_id = c.child_id) b on n.relation in ('batch', 'members')
  union all
  select 'schedule', s.name, null, null, s.type, null, null, null
  from queues.schedule_status s
  where s.name = _task.metadata ->> 'schedule' and s.namespace = _task.namespace
  union all
  select 'process', p.process, null, p.process_id, null, p.status, null, null
  from queues.processes_named(_task.type, _task.payload) p;
end
$$;

-- Returns what happened to a run in order, without values: attempts and acts, steps, failed tries, signals, what it
-- waits for, its deadline, and the tasks that it has started. Steps, tries and children are those of the current
-- generation, and the event continued names each generation that began. Children belong to the step of their name. Of
-- each kind, it returns the last 1,000; of the children, the first 1,000 of all steps.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.run_timeline(task_id uuid)
returns table (
  happened text, name text, started_at timestamptz, ended_at timestamptz, attempt integer, tries integer,
    worker_id text,
  actor text, reason text, related_id uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _generation constant integer := queues.current_generation(task_id);
begin
  if not exists (select from queues.task_status t where t.task_id = run_timeline.task_id) then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
  return query
  select t.happened, t.name, t.started_at, t.ended_at, t.attempt, t.tries, t.worker_id, t.actor, t.reason, t.related_id
  from (
    select e.event_type as happened,
      case when e.event_type = 'continued' then 'generation ' || (e.data ->> 'generation') end as name,
      e.occurred_at as started_at, e.occurred_at as ended_at,
      e.attempt,
      null::integer as tries, e.worker_id, e.actor, e.reason, null::uuid as related_id, 0 as rank,
      array_position(array['created', 'claimed', 'started'], e.event_type) as number
    from queues.task_events_of(array[run_timeline.task_id]) e
    union all
    select queues.step_kind(s.kind), s.name, s.ended_at - s.took_ms * interval '1 millisecond', coalesce(s.until,
      s.ended_at), null,
      s.tries, null, null, case when s.error is not null then queues.error_message(s.error, 'failed') end, null, 2,
        s.number
    from (
      select s.* from queues.step s
      where s.task_id = run_timeline.task_id and s.generation = _generation
      order by s.number desc limit 1000) s
    union all
    select 'try', y.step, y.occurred_at, y.retry_at, null, y.step_try, null, null, y.message, null, 1, 0
    from (
      select y.* from queues.error y
      where y.task_id = run_timeline.task_id and y.generation = _generation and y.step is not null
      order by y.error_id desc limit 1000) y
    union all
    select 'signalled', s.name, s.sent_at, p.ended_at, null, null, null, s.sent_by, s.key, null, 1, 0
    from (
      select s.* from queues.signal s where s.task_id = run_timeline.task_id order by s.signal_id desc limit 1000) s
    left join lateral (
      select p.ended_at from queues.step p
      where p.signal_id = s.signal_id and p.signal_id is not null limit 1) p on true
    union all
    select 'waits', w.name, w.until, w.until, null, null, null, null,
      case when w.signal is not null then 'signal ' || w.signal when w.on_task is not null then 'task ' || w.on_task
        else 'time' end,
      w.on_task, 3, 0
    from queues.wait w join queues.ready r on r.task_id = w.task_id and r.attempt = 0
      where w.task_id = run_timeline.task_id
    union all
    select 'deadline', null, ends.at, ends.at, null, null, null, null, null, null, 4, 0
    from queues.task k
    cross join lateral (select queues.end_of_life(k.task_id, k.created_at, k.deadline) as at) ends
    where k.task_id = run_timeline.task_id and k.deadline is not null
      and not exists (select from queues.outcome o where o.task_id = k.task_id)
    union all
    select 'child', c.step, k.created_at, o.finished_at, null, null, o.worker_id, null, o.status, c.child_id, 2,
      c.number
    from (
      select c.* from queues.child c
      where c.parent_id = run_timeline.task_id and (c.generation = _generation or c.generation = 1 and c.step = '')
      order by c.step, c.number limit 1000) c
    left join lateral (select k.created_at from queues.task k where k.task_id = c.child_id offset 0) k on true
    left join lateral (
      select o.finished_at, o.worker_id, o.status from queues.outcome o
      where o.task_id = c.child_id offset 0) o on true) t
  order by t.started_at, t.rank, t.number, t.name;
end
$$;

-- Returns the failed attempts and the failed tries of steps of the tasks with these ids. Unlike the view, a front asks
-- only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.task_errors_of(task_ids uuid[])
returns setof queues.task_error
language sql stable
as $$ select e.* from queues.task_error e where e.task_id = any ($1) $$;

-- Returns the history of the tasks with these ids, that of each task in order: of each, the last max_events events
-- before the given time, and those of the same instant as the first of them. The time of the first event is where the
-- page before it ends. Reads about max_events rows of a task however many it has; with before, also the newer ones.
-- Unlike the view, a front asks only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.task_events_of(
  task_ids uuid[], max_events integer default 1000, before timestamptz default null)
returns setof queues.task_event
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  -- Acts that were written at the same time may have ids in another order than their times.
  _most constant integer := max_events + 100;
  _before constant timestamptz := coalesce(before, 'infinity');
  _task_id uuid;
  _act_id bigint;
  _error_id bigint;
begin
  if max_events is null or max_events not between 1 and 1000 then
    raise exception using errcode = 'QF400',
      message = format('max_events %s is not between 1 and 1000', coalesce(max_events::text, 'null')),
      hint = 'For older events, call it again with before.';
  end if;
  for _task_id in
    select t.task_id from queues.task t
    where t.task_id = any (task_ids) and (queues.may_read_all() or t.namespace = queues.namespace())
    order by t.task_id
  loop
    _act_id := coalesce((
      select a.act_id from queues.act a where a.task_id = _task_id and a.occurred_at < _before
      order by a.act_id desc offset _most limit 1), 0);
    _error_id := coalesce((
      select e.error_id from queues.error e where e.task_id = _task_id and e.occurred_at < _before and e.step is null
      order by e.error_id desc offset _most limit 1), 0);
    return query
    select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
    from (
      select e.* from queues.event_origin e
      where e.task_id = _task_id and e.act_id >= _act_id and e.error_id >= _error_id and e.occurred_at < _before
      order by e.occurred_at desc fetch first (max_events) rows with ties) e
    order by e.occurred_at, e.rank, e.act_id, e.error_id;
  end loop;
end
$$;

-- Returns the tasks with these ids, as far as the caller may see them. Unlike the view, a front asks only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.tasks_of(task_ids uuid[])
returns setof queues.task_status
language sql stable
as $$ select s.* from queues.task_status s where s.task_id = any ($1) $$;
