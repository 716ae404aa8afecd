-- Names the tasks that are a burden: runs of which workers say in heartbeats that the server cannot read or record
-- them, or that they write too much, and child processes that wrote to their worker what is no message. Reads up to 20
-- runs of each worker, and the newest 1,000 errors.
-- Internal: called by health.
create or replace function queues.health_of_runs(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with told as materialized (
    select h.task_id, h.token, h.trouble, w.worker_id
    from queues.worker w
    cross join lateral jsonb_to_recordset(w.troubles) h(task_id uuid, token bigint, trouble text)
    where w.last_heartbeat > now - w.timeout and w.troubles is not null
    limit 1000)
  select 'troubled_run', 'amber', h.task_id::text,
    extract(epoch from now - coalesce(l.started_at, l.claimed_at))::double precision,
    format('run %s of type %s has a problem (%s): %s; worker %s has run it for %s', h.task_id, t.type, h.trouble,
      k.problem, h.worker_id,
      queues.format_duration(extract(epoch from now - coalesce(l.started_at, l.claimed_at))::double precision)),
    format('%s The log of worker %s says more. To end it: holdfast cancel %s', k.advice, h.worker_id, h.task_id), null
  from told h
  join (values
    ('the server cannot read what it remembers', 'run_not_read', 'It is tried again by itself.'),
    ('the server cannot store a step of it', 'step_not_stored', 'It is tried again by itself.'),
    ('the server cannot start the tasks that it starts', 'children_not_started',
      'It is tried again by itself. Look for a transaction that stays open and holds an idempotency key.'),
    ('its child process has to wait because it writes too much to its worker', 'run_throttled',
      'It goes on slowly. Let it record fewer steps, or report progress less often.'))
    k(problem, trouble, advice) on k.trouble = h.trouble
  cross join lateral (
    select l.started_at, l.claimed_at from queues.lease l
    where l.task_id = h.task_id and l.token = h.token and l.worker_id = h.worker_id offset 0) l
  cross join lateral (select t.type from queues.task t where t.task_id = h.task_id offset 0) t
  order by 4 desc, h.task_id limit 50;

  return query
  with newest as materialized (
    select e.* from (select e.* from queues.error e order by e.error_id desc limit 1000) e
    where e.kind = 'envelope_malformed' and e.step is null and e.occurred_at > now - interval '10 minutes')
  select 'troubled_run', 'amber', n.task_id::text, n.age,
    format('task %s of type %s wrote what is no message to its worker (envelope_malformed), %s ago', n.task_id, t.type,
      queues.format_duration(n.age)),
    format('Its handler must not write to the descriptor of the worker, nor a command print anything but its envelope. '
      'What it did: holdfast why %s', n.task_id),
    left(n.message, 200)
  from (
    select distinct on (e.task_id) e.task_id, e.message,
      extract(epoch from now - e.occurred_at)::double precision as age
    from newest e order by e.task_id, e.error_id desc) n
  cross join lateral (select t.type from queues.task t where t.task_id = n.task_id offset 0) t
  order by n.age, n.task_id limit 50;
end
$$;

comment on function queues.health_of_runs(timestamptz) is
  'Names tasks that are a burden: runs that cannot be read or recorded, or write too much, and malformed messages.';
