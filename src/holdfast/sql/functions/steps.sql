-- The memory of runs: each step is recorded once with its result, and a run that begins again reads what it has
-- recorded and goes on from there. ctx.continue_as ends a generation: the next one begins in the same task, with
-- another payload and no memory. A fork is a new task that remembers the first steps of another one.
-- Invariant: a step is written by the worker that holds the lease of its run with this token, and never changes
-- afterwards: the first write wins. Steps, children and errors carry the number of their generation, so the next one
-- does not see them. Only begin_generations updates a row of queues.task.
-- Lock order: leases by task_id, without waiting, until the commit; then, for a new generation, the tasks. insert_steps
-- locks nothing: its caller holds the leases or, as finish, has removed them. A fork locks nothing that exists.
-- At the same time: while a step is being recorded, no sweep can take the lease, so the next claim sees every step of
-- the one before. A call that is repeated while the first is still open gets busy, and later already. A step that an
-- application records in its own transaction holds the lease until that ends. A fork that reads a run while it goes on
-- copies the steps of the generation that it has read first.
-- Explained in docs/design/runs.md.

-- Returns what the current generation of runs remembers, one row per fact: steps, failed tries of steps that have not
-- ended (the last one of each), signals that no wait has taken, awaited children with their ends, and waits with their
-- timeouts. A run that the worker does not hold with this token gets one row with the fact lost. Every other run gets
-- one row with the fact run: when its generation began, which is when it was enqueued or went on, the limits of its
-- memory, and the changes of its type. A signal has its payload if the run waits for its name, or if held names it in
-- "signals": the oldest first, about 1 MiB for each name. Of all others, there is one row for each name, with their
-- number, and the fact unread.
-- For holdfast_worker. Locks: none.
create or replace function queues.read_steps(worker_id text, held jsonb)
returns table (
  task_id uuid, fact text, name text, number integer, kind text, until timestamptz, signal_id bigint, result jsonb,
  error jsonb)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _limits constant jsonb := (
    select jsonb_object_agg(s.name, s.value) from queues.setting s
    where s.name = any ('{max_steps,max_memo_bytes,max_result_bytes}'));
begin
  return query
  with given as materialized (
    select h.task_id, h.signals, (
      select coalesce(l.generation, 1) from queues.lease l
      where l.task_id = h.task_id and l.token = h.token and l.worker_id = read_steps.worker_id limit 1) as generation
    from jsonb_to_recordset(held) as h(task_id uuid, token bigint, signals text[])),
  known as materialized (
    select g.task_id, g.signals, g.generation from given g where g.generation is not null),
  untaken as materialized (
    select k.task_id, s.signal_id, s.name, s.bytes, coalesce(s.name = any (k.signals), false) or coalesce((
      select true from queues.wait w where w.task_id = k.task_id and w.signal = s.name limit 1), false) as wanted
    from known k
    cross join lateral (
      select s.signal_id, s.name, s.bytes from queues.signal s
      -- Avoids exists, which the planner may implement by reading a whole table once.
      where s.task_id = k.task_id and (
        select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
      offset 0) s),
  mail as materialized (
    select u.task_id, u.signal_id, u.name, u.wanted and sum(u.bytes) filter (where u.wanted)
      over (partition by u.task_id, u.name order by u.signal_id) - u.bytes < 1048576 as is_read
    from untaken u)
  select g.task_id, case when g.generation is not null then 'run' else 'lost' end, null, null::integer, null,
    t.begun_at,
    null::bigint,
    _limits || jsonb_build_object('changes', (
      select jsonb_object_agg(c.name, extract(epoch from c.first_seen_at)) from queues.change c
        where c.type = t.type)), null::jsonb
  from given g
  left join lateral (
    select t.type, case when g.generation = 1 then t.created_at else (
      select b.ended_at from queues.generation b where b.task_id = t.task_id and b.number = g.generation - 1) end
      as begun_at
    from queues.task t
    where t.task_id = g.task_id and g.generation is not null offset 0) t on true
  union all
  select k.task_id, 'step', s.name, s.number, queues.step_kind(s.kind), s.until, s.signal_id, s.result, s.error
  from known k
  cross join lateral (
    select s.* from queues.step s where s.task_id = k.task_id and s.generation = k.generation offset 0) s
  union all
  select k.task_id, 'try', t.name, t.try, null, t.retry_at, null, null, t.error
  from known k
  cross join lateral (
    select distinct on (e.step) e.step as name, e.step_try as try, e.retry_at, e.detail as error from queues.error e
    where e.task_id = k.task_id and e.generation = k.generation and e.step is not null
    order by e.step, e.step_try desc) t
  union all
  (select m.task_id, 'signal', m.name, null, null, null, m.signal_id, (
     select s.payload from queues.signal s where s.signal_id = m.signal_id limit 1), null
   from mail m where m.is_read order by m.signal_id)
  union all
  select m.task_id, 'unread', m.name, count(*)::integer, null, null, null, null, null
  from mail m where not m.is_read group by m.task_id, m.name
  union all
  select k.task_id, 'children', c.step, c.count, null, null, null, c.results, c.others
  from known k
  cross join lateral queues.read_children(k.task_id) c
  union all
  select k.task_id, 'wait', w.name, w.number, w.policy, w.until, null, null, null
  from known k
  cross join lateral (select w.* from queues.wait w where w.task_id = k.task_id offset 0) w;
end
$$;

-- Returns the word for the code of a kind of step. No pinned path, so that a view can read it.
create or replace function queues.step_kind(code "char")
returns text
language sql immutable parallel safe
as $$
  select case code when 's' then 'step' when 't' then 'transaction' when 'z' then 'sleep' when 'm' then 'signal'
    when 'c' then 'children' when 'f' then 'first' when 'n' then 'since' when 'r' then 'removed' end
$$;

-- Records one plain step of a running task that has succeeded at its first try, and returns whether it did. Returns
-- false if record_steps has to look closer: the lease is locked or this worker does not hold it with this token, the
-- result or the arguments are large, the name or number cannot be, or the run has too many steps. A name that is
-- recorded already is refused by the primary key: a look before each insert would cost as much as the lease. A run that
-- is alone waits for each of its steps, and this call takes half of the server's time of a batch of one. The lease
-- stays locked until the commit, which waits for the disk.
-- For holdfast_worker. Locks: a lease row, without waiting.
create or replace function queues.record_step(
  worker_id text, task_id uuid, token bigint, name text, number integer, took_ms integer, result jsonb,
  arguments jsonb default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
declare
  _durable constant text := queues.commit_to_disk();
begin
  -- One condition without a query, because each takes some microseconds of a step.
  if (number between 0 and 1000 and octet_length(name) between 1 and 500) is not true  -- the minimum of the setting
    or (octet_length(queues.safe_text(result)) <= 4096) is not true
    or arguments is not null and (octet_length(queues.safe_text(arguments)) <= 4096) is not true
  then
    if (number >= 0 and octet_length(name) between 1 and 500) is not true
      or result is not null and (octet_length(queues.safe_text(result)) <= 4096) is not true
      or arguments is not null and (octet_length(queues.safe_text(arguments)) <= 4096) is not true
      or number > (select s.value from queues.setting s where s.name = 'max_steps')
    then
      return false;
    end if;
  end if;
  insert into queues.step (token, ended_at, task_id, generation, number, took_ms, tries, kind, name, result,
    arguments)
  select l.token, queues.clock(), l.task_id, coalesce(l.generation, 1), record_step.number,
    greatest(record_step.took_ms, 0), 1, 's', record_step.name, nullif(record_step.result, 'null'),
    record_step.arguments
  from queues.lease l
  where l.task_id = record_step.task_id and l.token = record_step.token and l.worker_id = record_step.worker_id
    for no key update skip locked;
  return found;
end
$$;

-- Records steps and failed tries of running tasks, and returns a verdict for each run: recorded, already, cancelled,
-- lost or busy. A run is {"task_id", "token", "steps": [{"name", "number", "kind", "tries", "took_ms", "until",
-- "signal_id", "result", "error"}], "tries": [{"name", "try", "tries", "retry_at", "error"}]}. A step that is recorded
-- never changes: already means that some of the steps were there, and returns what is stored of them. Only the worker
-- that holds the lease with this token records; the lease stays locked until the commit, so no other claim can begin
-- before. The commit waits for the disk unless every run has "lazy": true.
-- For holdfast_worker. Locks: lease rows, without waiting.
create or replace function queues.record_steps(worker_id text, runs jsonb)
returns table (task_id uuid, verdict text, stored jsonb)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _checked boolean;
  _places integer[];
  _given integer;
  _written integer;
  _names text[];
begin
  _checked := queues.check_batch('runs', runs);
  if jsonb_path_exists(runs, 'strict $[*] ? (!(@.lazy == true) || (@.lazy == true) is unknown)') then
    perform queues.commit_to_disk();
  end if;
  perform queues.check_steps(runs);
  select coalesce(array_agg(g.n), '{}') into _places
  from (
    select r.n::integer as n, r.task_id, r.token
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint)) with ordinality r(task_id, token, n)
    order by r.task_id) g
  cross join lateral (
    select from queues.lease l
    where l.task_id = g.task_id and l.token = g.token and l.worker_id = record_steps.worker_id
      for no key update skip locked) l;
  select i.given, i.written, i.names into _given, _written, _names from queues.insert_steps(runs, _places, _now) i;

  if cardinality(_places) = jsonb_array_length(runs) and _written = _given then
    return query
    select r.task_id, 'recorded', null::jsonb
    from rows from (jsonb_to_recordset(runs) as (task_id uuid)) with ordinality r(task_id, n) order by r.n;
    return;
  end if;
  -- A separate statement, so that it sees what was committed meanwhile.
  return query
  select r.task_id, case
      when r.n = any (_places) then case when s.stored is null then 'recorded' else 'already' end
      when (select true from queues.act a
        where a.task_id = r.task_id and a.token = r.token and a.act = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.lease l
        where l.task_id = r.task_id and l.token = r.token and l.worker_id = record_steps.worker_id limit 1) then 'busy'
      else 'lost' end, s.stored
  from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, steps jsonb))
    with ordinality r(task_id, token, steps, n)
  left join lateral (
    select jsonb_agg(jsonb_build_object('name', p.name, 'token', p.token, 'result', p.result, 'error', p.error))
      as stored
    from jsonb_to_recordset(r.steps) as g(name text)
    cross join lateral (
      select p.* from queues.step p
      where p.task_id = r.task_id and p.generation = queues.current_generation(r.task_id) and p.name = g.name
      offset 0) p
    where _written < _given and r.n = any (_places) and r.task_id || ' ' || p.name <> all (coalesce(_names,
      '{}'))) s on true
  order by r.n;
end
$$;

-- Refuses steps past the maximum number of a run.
create or replace function queues.check_steps(runs jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most bigint;
  _step jsonb;
begin
  if jsonb_path_exists(runs, '$[*].steps[*] ? (@.number > 1000)') then  -- the minimum of the setting
    select s.value into _most from queues.setting s where s.name = 'max_steps';
    _step := jsonb_path_query_first(runs, '$[*].steps[*] ? (@.number > $most)', jsonb_build_object('most', _most));
    if _step is not null then
      raise exception using errcode = 'QF413',
        message = format('step %s is number %s of its run, and a run has at most %s steps',
        _step ->> 'name', _step ->> 'number', _most), hint = 'Begin again with ctx.continue_as.';
    end if;
  end if;
end
$$;

-- Writes the steps and failed tries of runs whose leases the caller has locked, and returns how many steps were given
-- and how many were new, and which if not all were. Refuses steps without a usable name, number or kind. What is there
-- already stays: the first write wins. Refuses a step that takes a signal of another run. A result that could not be
-- read back is replaced by an error, so that a resumed run never takes a note for its value.
-- Internal: called by record_steps and finish.
create or replace function queues.insert_steps(
  runs jsonb, places integer[], now timestamptz, out given integer, out written integer, out names text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with step as materialized (
    select r.task_id, r.token, g.generation, s.name, s.number, s.kind, s.tries, s.took_ms, s.until, s.signal_id,
      s.result, s.error, s.arguments,
      s.result is not null and coalesce(octet_length(queues.safe_text(s.result)), 4097) > 4096 as large,
      -- A report that has a name or a signal twice must not fail with all others of its batch.
      row_number() over (partition by r.task_id, s.name order by s.number) as same_name,
      row_number() over (partition by r.task_id, s.signal_id order by s.number) as same_signal
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, steps jsonb))
      with ordinality r(task_id, token, steps, n)
    -- Not from the lease, which finish has removed.
    cross join lateral (
      select coalesce(t.generation, 1) as generation from queues.task t where t.task_id = r.task_id offset 0) g
    cross join lateral jsonb_to_recordset(r.steps) as s(name text, number integer, kind text, tries smallint,
      took_ms integer, until timestamptz, signal_id bigint, result jsonb, error jsonb,
      arguments jsonb)
    where r.n = any (places)),
  kept as (
    -- The lease is locked, so no other session writes steps of this run. On conflict would write 48 bytes more per
    -- step.
    insert into queues.step (token, ended_at, task_id, generation, number, took_ms, tries, kind, name, result, error,
      until, signal_id, arguments)
    select s.token, insert_steps.now, s.task_id, s.generation, s.number, greatest(coalesce(s.took_ms, 0), 0),
      coalesce(s.tries, 1),
      queues.step_code(s.kind),
      case when s.number >= 0 and octet_length(s.name) between 1 and 500 and queues.step_code(s.kind) is not null
        then s.name else queues.refuse_step(s.name, s.number, s.kind) end,
      case when p.problem is null then s.result end,
      case when p.problem is null then queues.storable(s.error, 65536)
        else jsonb_build_object('kind', 'result_not_storable', 'message', 'the result ' || p.problem) end,
      s.until,
      case when s.signal_id is null
          or (select true from queues.signal g where g.signal_id = s.signal_id and g.task_id = s.task_id limit 1)
        then s.signal_id else queues.refuse_signal(s.task_id, s.signal_id) end,
      queues.storable(s.arguments, 4096)
    from step s
    cross join lateral (
      select case when s.large then queues.document_problem(
        s.result, (select v.value from queues.setting v where v.name = 'max_result_bytes')) end as problem) p
    where s.same_name = 1
      and (select true from queues.step k
        where k.task_id = s.task_id and k.generation = s.generation and k.name = s.name limit 1) is null
      and (s.signal_id is null or s.same_signal = 1
        and (
          select true from queues.step k where k.signal_id = s.signal_id and k.signal_id is not null limit 1) is null)
    returning task_id || ' ' || name as step)
  select s.count, k.count, case when k.count < s.count then k.names end into given, written, names
  from (select count(*) from step) s, (select count(*), array_agg(k.step) as names from kept k) k;

  if jsonb_path_exists(runs, '$[*].steps[*] ? (@.kind == "first" || @.kind == "children" && exists (@.error))') then
    perform queues.cancel_unawaited(runs, places, insert_steps.now);
  end if;
  if jsonb_path_exists(runs, '$[*].tries') then
    perform queues.insert_tries(runs, places, insert_steps.now);
  end if;
end
$$;

-- Returns the code under which a kind of step is stored. Null for unknown kinds, which insert_steps refuses.
create or replace function queues.step_code(kind text)
returns "char"
language sql immutable parallel safe
as $$
  select (case kind when 'step' then 's' when 'transaction' then 't' when 'sleep' then 'z' when 'signal' then 'm'
    when 'children' then 'c' when 'first' then 'f' when 'since' then 'n' end)::"char"
$$;

-- Raises the error of a step, or of a failed try, that cannot be recorded; returns nothing.
-- Internal: called by insert_steps for such a step only, because a check of its own would cost each step some
-- microseconds.
create or replace function queues.refuse_step(name text, number integer, kind text)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF400',
    message = format('step %s with the number %s and the kind %s cannot be recorded',
      coalesce(to_json(left(name, 60))::text, 'null'), coalesce(number::text, 'null'),
      coalesce(to_json(left(kind, 60))::text, 'null')),
    hint = 'A step has a name of 1 to 500 bytes, a number from 0 on, and a kind: step, transaction, sleep, signal, '
      'children, first or since. A failed try has a name and a number, too.';
end
$$;

-- Writes the failed tries of steps of runs whose leases the caller has locked, as errors of their tasks. Of each step,
-- the newest 50 stay, however often it is tried.
create or replace function queues.insert_tries(runs jsonb, places integer[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _kept constant integer := 50;
begin
  insert into queues.error (task_id, token, occurred_at, retry_at, attempt, recovered, kind, message, worker_id,
    detail, step, step_try, step_tries, generation, error_group)
  select r.task_id, r.token, insert_tries.now, coalesce(t.retry_at, insert_tries.now),
    coalesce(a.attempt, 0), false, e.kind, e.message, a.worker_id, e.error,
    case when t.try >= 0 and octet_length(t.name) between 1 and 500 then t.name
      else queues.refuse_step(t.name, t.try, 'try') end,
    t.try, t.tries, queues.current_generation(r.task_id), queues.group_of_error(y.type, e.kind, e.error, e.message)
  from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, tries jsonb))
    with ordinality r(task_id, token, tries, n)
  cross join lateral jsonb_to_recordset(r.tries) as t(name text, try integer, tries integer, retry_at timestamptz,
    error jsonb)
  cross join lateral (
    select s.error, queues.error_kind(s.error, 'handler_error') as kind,
      queues.error_message(s.error, 'no message') as message
    from (select queues.storable(t.error, 65536) as error offset 0) s offset 0) e
  cross join lateral queues.attempt_by_token(r.task_id, r.token) a
  cross join lateral (select y.type from queues.task y where y.task_id = r.task_id offset 0) y
  where r.n = any (places)
  on conflict do nothing;

  if jsonb_path_exists(runs, '$[*].tries[*] ? (@.try > $kept)', jsonb_build_object('kept', _kept)) then
    perform set_config('holdfast.retention', 'on', true);
    delete from queues.error e
    using rows from (jsonb_to_recordset(runs) as (task_id uuid, tries jsonb)) with ordinality r(task_id, tries, n)
    cross join lateral jsonb_to_recordset(r.tries) as t(name text, try integer)
    where r.n = any (places) and e.task_id = r.task_id and e.generation = queues.current_generation(r.task_id)
      and e.step = t.name and e.step_try <= t.try - _kept;
    perform set_config('holdfast.retention', _retention, true);
  end if;
end
$$;

-- Records that the code of this type asks ctx.since for these names. Only the first time counts.
-- For holdfast_worker. Locks: none; waits for a transaction that records the same name.
create or replace function queues.record_changes(type text, names text[])
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if type is null or cardinality(names) > 1000 or exists (select from unnest(names) n(name)
    where length(n.name) > 200) then
    raise exception using errcode = 'QF400',
      message = 'names must be at most 1000 texts of at most 200 characters, of one type';
  end if;
  insert into queues.change (type, name, first_seen_at)
  select record_changes.type, n.name, queues.clock() from unnest(names) n(name) where n.name is not null order by n.name
  on conflict do nothing;
end
$$;

-- Returns the last failed try of each step that has not come to an end, of at most 1,000 steps of the current
-- generation of a run.
create or replace function queues.failing_steps(task_id uuid)
returns setof queues.error
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select e.*
  from (
    select distinct on (e.step) e.* from queues.error e
    where e.task_id = $1 and e.generation = queues.current_generation($1) and e.step is not null
    order by e.step, e.step_try desc limit 1000) e
  where not exists (select from queues.step s
      where s.task_id = e.task_id and s.generation = e.generation and s.name = e.step)
    and not exists (select from queues.outcome o where o.task_id = e.task_id)
$$;

-- Refuses to go on with a run whose steps retention has removed: all of them would run again.
-- Internal: called by retry and fork.
create or replace function queues.check_memory(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queues.step s where s.task_id = check_memory.task_id and s.kind = 'r') then
    raise exception using errcode = 'QF412',
      message = format('retention has removed the steps of run %s, so they would all run again', task_id),
      hint = 'Replay it to run it from its beginning. holdfast retention set steps keeps steps longer.';
  end if;
end
$$;

-- Enqueues the current generation of a run again as a new task that remembers the steps before the given one, and
-- returns its id. The metadata of the new task names the original as fork_of. Without a step, it remembers all of them.
-- Signals that the original has not taken are not copied. It does not wait for the tasks that the original came after.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: no existing rows.
create or replace function queues.fork(task_id uuid, before_step text default null, reason text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task queues.task;
  _number integer;
  _generation integer;
  _fork uuid;
begin
  perform queues.check_task_owner(task_id);
  perform queues.check_memory(task_id);
  select * into _task from queues.task t where t.task_id = fork.task_id;
  _generation := coalesce(_task.generation, 1);
  if before_step is not null then
    select s.number into _number from queues.step s
    where s.task_id = fork.task_id and s.generation = _generation and s.name = before_step;
    if not found then
      raise exception using errcode = 'QF404', message = format('run %s has not recorded a step %s', task_id,
        to_json(before_step)),
        hint = 'Look for its name in queues.step_status.';
    end if;
  end if;
  select i.task_id into _fork from queues.insert_tasks(
    jsonb_build_array(jsonb_build_object('type', _task.type, 'payload', _task.payload, 'queue', _task.queue,
      'priority', _task.priority, 'max_attempts', _task.max_attempts, 'executor', _task.executor,
      'timeout', extract(epoch from _task.timeout)::text, 'lease', extract(epoch from _task.lease)::text,
      'deadline', extract(epoch from _task.deadline)::text,
      'concurrency_key', _task.concurrency_key,
      'metadata', coalesce(_task.metadata, '{}') || jsonb_build_object('fork_of', _task.task_id)
        || case when reason is null then '{}' else jsonb_build_object('fork_reason', left(reason, 2000)) end)),
    for_process => queues.has_role('operator'), namespace => _task.namespace) i;
  insert into queues.step (token, ended_at, task_id, number, took_ms, tries, kind, name, result, error, until,
    arguments)
  select 0, s.ended_at, _fork, s.number, s.took_ms, s.tries, s.kind, s.name, s.result, s.error, s.until,
      s.arguments
    from queues.step s
  where s.task_id = fork.task_id and s.generation = _generation and (_number is null or s.number < _number);
  insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, key)
  select _fork, c.step, c.number, c.child_id, c.awaited, false, c.key
  from queues.child c left join queues.step s on s.task_id = _fork and s.name = c.step
  -- Without a step: the tasks that it came after, whose results ctx.after returns.
  where c.parent_id = fork.task_id
    and (c.generation = _generation and s.name is not null or c.generation = 1 and c.step = '');
  return _fork;
end
$$;

-- Returns the payload with which a task was enqueued: that of its first generation.
-- Internal: called by reserve_keys and replay. Locks: none.
create or replace function queues.first_payload(task_id uuid)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when t.generation is null then t.payload else (
    select g.payload from queues.generation g where g.task_id = t.task_id and g.number = 1) end
  from queues.task t where t.task_id = first_payload.task_id
$$;

-- Begins the next generation of runs that go on by ctx.continue_as, with other arguments and no memory. They stay the
-- same tasks: ids, keys, signals, deadlines and all who wait for them stay as they are.
-- Internal: called by finish, which has ended their leases, recorded their last steps and made them ready.
create or replace function queues.begin_generations(continued jsonb, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids constant uuid[] := array(select c.task_id from jsonb_to_recordset(continued) as c(task_id uuid));
begin
  insert into queues.generation (task_id, ended_at, number, payload)
  select t.task_id, begin_generations.now, coalesce(t.generation, 1), t.payload
  from queues.task t where t.task_id = any (_ids);
  perform set_config('holdfast.continues', 'on', true);
  update queues.task t set payload = c.payload, generation = coalesce(t.generation, 1) + 1
  from jsonb_to_recordset(continued) as c(task_id uuid, payload jsonb)
  where t.task_id = any (_ids) and t.task_id = c.task_id;
  perform set_config('holdfast.continues', 'off', true);
  delete from queues.wait w where w.task_id = any (_ids);
  perform queues.wake_for(c.task_id) from unnest(_ids) c(task_id);
end
$$;

-- Returns the number of the current generation of a run; null if there is no such task.
create or replace function queues.current_generation(task_id uuid)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(t.generation, 1) from queues.task t where t.task_id = current_generation.task_id $$;

-- Returns why a run cannot go on with these arguments, or null.
-- Internal: called by finish.
create or replace function queues.why_not_continue(payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'the arguments of the next run: the payload ' || case when jsonb_typeof(payload) is distinct from 'object'
    then 'is not an object'
    else queues.document_problem(payload, (select s.value from queues.setting s where s.name = 'max_payload_bytes')) end
$$;
