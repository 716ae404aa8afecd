-- Replaces what runs wait for by the waits of their reports. A wait for a signal or a task that goes on keeps its row,
-- and so its timeout. A wait for a time takes the new one: a step that failed again is tried later.
-- Runs that wait for a signal or a task are looked at again after the commit.
-- Internal: called by finish for runs that it has suspended.
create or replace function queues.write_waits(results jsonb, places integer[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with given as materialized (
    select r.task_id, w.name, w.until, w.signal, w.on_task, w.number, w.policy
    from rows from (jsonb_to_recordset(results) as (task_id uuid, waits jsonb)) with ordinality r(task_id, waits, n)
    left join lateral jsonb_to_recordset(r.waits) as w(
      name text, until timestamptz, signal text, on_task uuid, number integer, policy text) on true
    where r.n = any (places)),
  dropped as (
    delete from queues.wait w
    where w.task_id = any (array(select g.task_id from given g))
      and not exists (select from given g where g.task_id = w.task_id and g.name = w.name)),
  added as (
    insert into queues.wait (task_id, name, until, signal, on_task, number, policy)
    select g.task_id, g.name, coalesce(g.until, write_waits.now + interval '30 days'), g.signal,
      coalesce(g.on_task, o.task_id), coalesce(g.number, o.number), g.policy
    from given g
    left join lateral queues.first_open_child(g.task_id, g.name, 1) o on g.policy = 'all'
    where g.name is not null
    on conflict do nothing),
  moved as (
    update queues.wait w set until = g.until
    from given g
    where w.task_id = any (array(select g.task_id from given g)) and w.task_id = g.task_id and w.name = g.name
      and num_nonnulls(w.signal, w.on_task, w.policy, g.signal, g.on_task, g.policy) = 0 and w.until <> g.until),
  looked_again as (
    -- The pointer of a join was at its end, and the run waits on: a child that had ended was retried or restored.
    update queues.wait w set (on_task, number) = (
      select o.task_id, coalesce(o.number, w.number) from queues.first_open_child(w.task_id, w.name, 1) o)
    where w.task_id = any (array(select g.task_id from given g where g.policy = 'all')) and w.on_task is null
      and exists (select from given g where g.task_id = w.task_id and g.name = w.name and g.policy = 'all'))
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", write_waits.now, g.task_id from given g
  where num_nonnulls(g.signal, g.on_task, g.policy) > 0;
end
$$;

comment on function queues.write_waits(jsonb, integer[], timestamptz) is
  'Replaces what runs wait for by the waits of their reports.';
