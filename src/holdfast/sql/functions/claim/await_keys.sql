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

comment on function queues.await_keys(tid[], integer[], text[], integer[]) is
  'Returns which of these ready rows may be set aside until a task of their key ends.';
