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

comment on function queues.signal(uuid, text, jsonb, text) is
  'Sends a signal to a run, which takes it when it waits for this name, now or later.';
