-- Writes the steps and failed tries of runs whose leases the caller has locked, and returns how many steps were
-- given and how many were new, and which if not all were. Refuses steps without a usable name, number or kind. What is
-- there already stays: the first write wins. A result that could not be read back is replaced by an error, so that a
-- resumed run never takes a note for its value.
-- Internal: called by record_steps and finish.
create or replace function queues.insert_steps(
  runs jsonb, places integer[], now timestamptz, out given integer, out written integer, out names text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with step as materialized (
    select r.task_id, r.token, s.name, s.number, s.kind, s.tries, s.took_ms, s.until, s.signal_id, s.result, s.error,
      s.result is not null and coalesce(octet_length(queues.safe_text(s.result)), 4097) > 4096 as large
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, steps jsonb))
      with ordinality r(task_id, token, steps, n)
    cross join lateral jsonb_to_recordset(r.steps) as s(name text, number integer, kind text, tries smallint,
      took_ms integer, until timestamptz, signal_id bigint, result jsonb, error jsonb)
    where r.n = any (places)),
  kept as (
    -- The lease is locked, so no other session writes steps of this run. On conflict would write 48 bytes more per
    -- step.
    insert into queues.step (token, ended_at, task_id, number, took_ms, tries, kind, name, result, error, until,
      signal_id)
    select s.token, insert_steps.now, s.task_id, s.number, greatest(coalesce(s.took_ms, 0), 0), coalesce(s.tries, 1),
      queues.step_code(s.kind),
      case when s.number >= 0 and octet_length(s.name) between 1 and 500 and queues.step_code(s.kind) is not null
        then s.name else queues.refuse_step(s.name, s.number, s.kind) end,
      case when p.problem is null then s.result end,
      case when p.problem is null then queues.storable(s.error, 65536)
        else jsonb_build_object('kind', 'result_not_storable', 'message', 'the result ' || p.problem) end,
      s.until, s.signal_id
    from step s
    cross join lateral (
      select case when s.large then queues.document_problem(
        s.result, (select v.value from queues.setting v where v.name = 'max_result_bytes')) end as problem) p
    where (select true from queues.step k where k.task_id = s.task_id and k.name = s.name limit 1) is null
    returning task_id || ' ' || name as step)
  select s.count, k.count, case when k.count < s.count then k.names end into given, written, names
  from (select count(*) from step) s, (select count(*), array_agg(k.step) as names from kept k) k;

  if jsonb_path_exists(runs, '$[*].steps[*] ? (@.kind == "since")') then
    insert into queues.change (type, name, first_seen_at)
    select distinct t.type, substr(s.name, 7), insert_steps.now
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, steps jsonb)) with ordinality r(task_id, steps, n)
    cross join lateral jsonb_to_recordset(r.steps) as s(name text, kind text)
    cross join lateral (select t.type from queues.task t where t.task_id = r.task_id offset 0) t
    where r.n = any (places) and s.kind = 'since' and starts_with(s.name, 'since ')
    on conflict do nothing;
  end if;
  if jsonb_path_exists(runs, '$[*].steps[*] ? (@.kind == "first" || @.kind == "children" && exists (@.error))') then
    -- The step no longer waits for those that have not ended: the others of a race, or of a join that took too long.
    insert into queues.unwanted (task_id, reason)
    select distinct on (1) queues.last_run(c.child_id), format('%s of its parent %s is over', s.name, r.task_id)
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, steps jsonb)) with ordinality r(task_id, steps, n)
    cross join lateral jsonb_to_recordset(r.steps) as s(name text, kind text)
    cross join lateral (
      select c.child_id from queues.child c
      where c.parent_id = r.task_id and c.step = s.name and c.ends_with_parent
        and (select true from queues.outcome o where o.task_id = queues.last_run(c.child_id) limit 1) is null
      offset 0) c
    where r.n = any (places) and s.kind in ('children', 'first') order by 1
    on conflict do nothing;
  end if;
  if jsonb_path_exists(runs, '$[*].tries') then
    insert into queues.step_try (task_id, name, try, token, occurred_at, retry_at, error)
    select r.task_id, case when t.try >= 0 and octet_length(t.name) between 1 and 500 then t.name
        else queues.refuse_step(t.name, t.try, 'try') end,
      t.try, r.token, insert_steps.now, coalesce(t.retry_at, insert_steps.now), queues.storable(t.error, 65536)
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, tries jsonb))
      with ordinality r(task_id, token, tries, n)
    cross join lateral jsonb_to_recordset(r.tries) as t(name text, try integer, retry_at timestamptz, error jsonb)
    where r.n = any (places)
    on conflict do nothing;
  end if;
end
$$;

comment on function queues.insert_steps(jsonb, integer[], timestamptz) is
  'Writes the steps and failed tries of runs whose leases the caller has locked, and returns how many steps were new.';
