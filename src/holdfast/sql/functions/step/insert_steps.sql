-- Writes the steps and failed tries of runs whose leases the caller has locked, and returns how many steps were
-- given and how many were new, and which if not all were. Refuses steps without a usable name, number or kind. What is
-- there already stays: the first write wins. Refuses a step that takes a signal of another run. A result that could not
-- be read back is replaced by an error, so that a resumed run never takes a note for its value.
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
    -- The step no longer waits for those that have not ended: the others of a race, or of a join that took too long.
    insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
    select distinct on (3) 'c'::"char", insert_steps.now, c.child_id, 's'::"char", r.task_id,
      format('%s of its parent %s is over', s.name, r.task_id)
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, steps jsonb)) with ordinality r(task_id, steps, n)
    cross join lateral jsonb_to_recordset(r.steps) as s(name text, kind text)
    cross join lateral (
      select c.child_id from queues.child c
      where c.parent_id = r.task_id and c.generation = queues.current_generation(r.task_id) and c.step = s.name
        and c.ends_with_parent
        and (select true from queues.outcome o where o.task_id = c.child_id limit 1) is null
      offset 0) c
    where r.n = any (places) and s.kind in ('children', 'first') order by 3;
  end if;
  if jsonb_path_exists(runs, '$[*].tries') then
    perform queues.insert_tries(runs, places, insert_steps.now);
  end if;
end
$$;

comment on function queues.insert_steps(jsonb, integer[], timestamptz) is
  'Writes the steps and failed tries of runs whose leases the caller has locked, and returns how many steps were new.';
