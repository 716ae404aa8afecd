-- Records one plain step of a running task that has succeeded at its first try, and returns whether it did. Returns
-- false if record_steps has to look closer: the lease is locked or this worker does not hold it with this token, the
-- result or the arguments are large, the name or number cannot be, or the run has too many steps. A name that is
-- recorded already is refused by the primary key: a look before each insert would cost as much as the lease. A run
-- that is alone waits for each of its steps, and this call takes half of the server's time of a batch of one. The lease
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

comment on function queues.record_step(text, uuid, bigint, text, integer, integer, jsonb, jsonb) is
  'Records one plain step of a running task, and returns false if record_steps has to look closer.';
