-- Returns the next results of the children of a step, in order, after this place: those that succeeded, about 4 MiB as
-- text, and at least one. None if there are no more, or if the worker does not hold the run with this token.
-- A loop, so that no more results are read than are returned: a hundred thousand of them may have a megabyte each.
-- For holdfast_worker. Locks: none.
create or replace function queues.read_results(
  worker_id text, task_id uuid, token bigint, step text, after_number integer)
returns table (number integer, result jsonb)
language plpgsql stable security definer rows 1000
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _generation constant integer := (
    select coalesce(l.generation, 1) from queues.lease l
    where l.task_id = read_results.task_id and l.token = read_results.token and l.worker_id = read_results.worker_id);
  _bytes bigint := 0;
begin
  if _generation is null then
    return;
  end if;
  for number, result in
    select c.number, coalesce(o.result, 'null')
    from queues.child c
    cross join lateral (
      select o.status, o.result from queues.outcome o where o.task_id = c.child_id offset 0) o
    where c.parent_id = read_results.task_id
      and c.generation = case when read_results.step = '' then 1 else _generation end
      and c.step = read_results.step and c.number > after_number and o.status = 'succeeded'
    order by c.number
  loop
    return next;
    _bytes := _bytes + octet_length(result::text);
    exit when _bytes >= 4194304;
  end loop;
end
$$;

comment on function queues.read_results(text, uuid, bigint, text, integer) is
  'Returns the next results of the children of a step, in order, after this place, about 4 MiB of them.';
