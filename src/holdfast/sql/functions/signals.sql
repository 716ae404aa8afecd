-- Signals, and how they wake suspended runs. A suspended run is a ready row that is due when it has to look again, and
-- rows of queues.wait (joins.sql) that say what it waits for: a signal, a time, or other tasks. To wake a run is to
-- move its ready row to now.
-- Invariant: a signal stays in the mailbox of its run until one step takes it, and no second step can take it. If a run
-- is suspended until a signal comes, and the signal is there, the run is due or a chore is left that makes it due. A
-- wait keeps its row, and so its timeout, until its run suspends without it or ends.
-- Lock order: chores, then rows of queues.wait, then ready rows, all without waiting. A signal waits only for a
-- transaction that sends one with the same key to the same run; what writes or ends the waits of a run waits for their
-- rows.
-- At the same time: a signal and a suspension may not see each other. The signal then leaves a chore, the suspension
-- leaves one in any case, and the look that follows the later commit sees both. A run whose row is locked is skipped,
-- and its chore stays. A run that waits for its next attempt keeps its delay, and finds the signal when it runs.
-- Explained in docs/design/runs.md.

-- Sends a signal to a run, which takes it when it waits for this name, now or later, in whichever generation. Returns
-- kept; replayed if a signal with the same name, key and payload is there already; conflict if it has another payload;
-- ended if the run has ended. Takes effect when the caller's transaction commits. If the run waits for the signal, it
-- becomes due. Refuses more signals than a run may have untaken, in number or in bytes.
-- For holdfast_client (tasks of its namespace), holdfast_process and holdfast_operator. Locks: the ready row, without
-- waiting; waits for a transaction that sends a signal with the same key.
create or replace function queues.signal(task_id uuid, name text, payload jsonb default 'null', key text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _problem text;
  _same boolean;
begin
  perform queues.check_task_owner(task_id);
  payload := coalesce(payload, 'null');
  if name is null or length(name) not between 1 and 200 or length(key) not between 1 and 200 then
    raise exception using errcode = 'QF400',
      message = 'the name and the key of a signal must be text of 1 to 200 characters';
  end if;
  _problem := queues.document_problem(payload, (select s.value from queues.setting s
    where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = 'payload ' || _problem,
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end,
      hint = 'Store it elsewhere, and send a reference.';
  elsif exists (select from queues.outcome o where o.task_id = signal.task_id) then
    return 'ended';
  end if;

  insert into queues.signal (task_id, sent_at, bytes, name, key, sent_by, payload)
  values (task_id, _now, octet_length(payload::text), name, key, queues.actor(), payload)
  on conflict do nothing;
  if not found then
    select s.payload = signal.payload into _same from queues.signal s
    where s.task_id = signal.task_id and s.name = signal.name and s.key = signal.key;
    return case when _same then 'replayed' else 'conflict' end;
  end if;
  perform queues.check_signals(task_id);
  -- A run that is about to suspend is not seen here: a later look finds the chore. A run whose ready row another
  -- transaction holds is left to such a look, too, because two applications must not wait for each other.
  if not exists (select from queues.wait w where w.task_id = signal.task_id and w.signal = signal.name)
     or queues.wake_runs(array[task_id], _now) = '{}' then
    insert into queues.chore (kind, added_at, task_id) values ('w', _now, task_id);
  end if;
  return 'kept';
end
$$;

-- Refuses a signal with which a run would have too many that it has not taken, or too large ones together. Called after
-- the signal was written, so that a repeated one is not refused. Transactions that are open at the same time do not see
-- each other's signals, and do not wait for each other: each of them can add as many as the limit. What a worker reads
-- of them is bounded by read_steps.
create or replace function queues.check_signals(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_signals');
  _most_bytes constant bigint := (select s.value from queues.setting s where s.name = 'max_signal_bytes');
  _count bigint;
  _bytes bigint;
begin
  select count(*), sum(s.bytes) into _count, _bytes
  from (select s.bytes from queues.signal s where s.task_id = check_signals.task_id limit _most + 1) s;
  if _count <= _most and _bytes <= _most_bytes then
    return;
  end if;
  -- Those that were taken do not count. Few runs get here, so the others do not look for the steps that took them.
  select count(*), sum(s.bytes) into _count, _bytes
  from (
    select s.bytes from queues.signal s
    where s.task_id = check_signals.task_id and (
      select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
    limit _most + 1) s;
  if _count > _most then
    raise exception using errcode = 'QF429',
      message = format('run %s has %s signals that it has not taken, and at most %s are kept', task_id, _most, _most),
      hint = 'Send it again when the run has taken some. holdfast runs show tells what it waits for. '
        'To keep more, raise max_signals in queues.setting.';
  elsif _bytes > _most_bytes then
    raise exception using errcode = 'QF429',
      message = format('with this one, run %s would have signals of %s bytes that it has not taken, and at most %s are '
        'kept', task_id, _bytes, _most_bytes),
      hint = 'Send it again when the run has taken some, or send references. '
        'To keep more, raise max_signal_bytes in queues.setting.';
  end if;
end
$$;

-- Sends a signal to the run with this type and idempotency key in the caller's namespace, as signal does.
-- For holdfast_client, holdfast_process and holdfast_operator. Locks: as signal.
create or replace function queues.signal_key(
  type text, idempotency_key text, name text, payload jsonb default 'null', key text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _task_id uuid;
begin
  select k.task_id into _task_id from queues.task_key k
  where k.type = signal_key.type and k.idempotency_key = signal_key.idempotency_key
    and k.namespace = queues.namespace();
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no task of type %s with the key %s', to_json(type), to_json(idempotency_key)),
      hint = 'Enqueue the run with this key first, in the same namespace; retention may have removed it.';
  end if;
  return queues.signal(_task_id, name, payload, key);
end
$$;

-- Answers a callback link of a run with one of its choices, counted from 1: sends the signal with the payload of that
-- choice. Returns kept; answered if the link was answered before, whatever the choice was; expired, ended or unknown.
-- One link gives one signal. The caller has verified the signature of the link.
-- For holdfast_operator. Locks: as signal.
create or replace function queues.answer_callback(task_id uuid, link text, choice integer)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _asked record;
  _payload jsonb;
  _answer text;
begin
  select r.signal, r.state into _asked from queues.read_callback(task_id, link) r;
  if not found then
    return 'unknown';
  elsif _asked.state <> 'open' then
    return _asked.state;
  end if;
  select s.result->'choices'->(choice - 1)->1 into _payload from queues.step s
  where s.task_id = answer_callback.task_id and starts_with(s.name, 'callback[') and s.kind = 's'
    and s.result->>'link' = answer_callback.link and choice >= 1;
  if _payload is null then
    raise exception using errcode = 'QF400', message = format('the link has no choice %s', choice),
      hint = 'Choices are counted from 1.';
  end if;
  _answer := queues.signal(task_id, _asked.signal, _payload, 'callback ' || link);
  return case when _answer in ('replayed', 'conflict') then 'answered' else _answer end;
end
$$;

-- Returns what a callback link of a run asks, and whether it may still be answered: open, answered, expired or ended.
-- No row if the run has no such link. The caller has verified the signature of the link.
-- For holdfast_operator.
create or replace function queues.read_callback(task_id uuid, link text)
returns table (signal text, question text, labels text[], state text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select s.result->>'signal', s.result->>'question',
    array(select c.value->>0 from jsonb_array_elements(s.result->'choices') with ordinality c (value, number)
      order by c.number),
    case
      when exists (select from queues.signal m where m.task_id = s.task_id and m.name = s.result->>'signal'
          and m.key = 'callback ' || read_callback.link)
        then 'answered'
      when exists (select from queues.outcome o where o.task_id = s.task_id)
          or exists (select from queues.deletion d where d.task_id = s.task_id)
        then 'ended'
      when queues.clock() >= to_timestamp((s.result->>'expires_at')::double precision) then 'expired'
      else 'open'
    end
  from queues.step s
  where s.task_id = read_callback.task_id and starts_with(s.name, 'callback[') and s.kind = 's'
    and s.result->>'link' = read_callback.link;
$$;

-- Makes those of the given runs due whose wait is over: a signal has come that none of their steps has taken, or the
-- awaited tasks have ended. Returns how many got a signal. A worker calls it after the commit of a suspension, and the
-- chore wake does the same for all runs: a look after the later of two commits sees both.
-- For holdfast_worker. Locks: chores, then rows of queues.wait, then ready rows, without waiting.
create or replace function queues.wake_waiting(task_ids uuid[])
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _chores constant bigint[] := array(
    select c.chore_id from queues.chore c
    where c.task_id = any (task_ids) and c.kind = 'w' limit 1000 for update skip locked);
begin
  if _chores = '{}' then
    return 0;
  end if;
  return (select w.woken from queues.wake_chores(_chores, queues.clock()) w);
end
$$;

-- Makes suspended runs due whose wait is over: a signal has come that none of their steps has taken, or the awaited
-- tasks have ended. Looks at the runs of these chores and removes the chores. One whose run another transaction holds
-- stays. Returns how many it removed, and how many runs got a signal.
-- Internal: called by wake_waiting and do_chores, which have locked the chores. Locks: rows of queues.wait, then ready
-- rows, without waiting.
create or replace function queues.wake_chores(chores bigint[], now timestamptz, out done integer, out woken integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- A separate statement, so that it sees what was committed before those rows were.
  _seen constant uuid[] := array(
    select distinct c.task_id from queues.chore c where c.kind = 'w' and c.chore_id = any (chores));
  _due uuid[];
  _woken uuid[];
begin
  _due := array(
    select r.task_id from unnest(_seen) seen(task_id)
    cross join lateral (
      select r.task_id from queues.ready r
      where r.task_id = seen.task_id and r.run_at > wake_chores.now and r.attempt = 0 offset 0) r
    where (
      select true from queues.wait w
      where w.task_id = r.task_id and (
        select true from queues.signal s
        where s.task_id = w.task_id and s.name = w.signal and (
          select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
        limit 1)
      limit 1));
  _woken := queues.wake_runs(_due, now);
  woken := cardinality(_woken);
  -- Only rows that were seen: another one may have been committed since.
  delete from queues.chore c
  where c.kind = 'w' and c.chore_id = any (chores)
    and (c.task_id = any (_woken) or not c.task_id = any (_due));
  get diagnostics done = row_count;
  perform queues.settle_joins(_seen, _seen, now);
end
$$;

-- Raises the error of a step that takes a signal of another run; returns nothing.
-- Internal: called by insert_steps for such a step only.
create or replace function queues.refuse_signal(task_id uuid, signal_id bigint)
returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF400',
    message = format('signal %s cannot be taken by a step of task %s', signal_id, task_id),
    hint = 'A step takes only signals that were sent to its own task.';
end
$$;
