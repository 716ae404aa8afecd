-- Lets tasks wait for further ones, which were enqueued in this transaction or are in the batch already. Others are
-- refused: they could wait for the task after the batch themselves.
-- Internal: called by start_children, which has locked the batch. Locks: none.
create or replace function queues.extend_batch(after uuid[], task_ids uuid[], created boolean[], max_tasks bigint)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task_id uuid;
  _last integer;
  _new uuid[];
begin
  foreach _task_id in array after loop
    select coalesce(max(c.number), 0) into _last from queues.child c
    where c.parent_id = _task_id and c.generation = 1 and c.step = '';
    _new := array(
      select a.task_id from unnest(task_ids, created) with ordinality a(task_id, created, n)
      where a.created or (
        select true from queues.child c
        where c.child_id = a.task_id and c.parent_id = _task_id and c.generation = 1 and c.step = '' limit 1) is null
      order by a.n);
    if (select bool_or(not a.created) from unnest(task_ids, created) a(task_id, created)
        where a.task_id = any (_new)) then
      raise exception using errcode = 'QF412',
        message = format('task %s was enqueued before, and not in this batch', (
          select a.task_id from unnest(task_ids, created) a(task_id, created)
          where a.task_id = any (_new) and not a.created limit 1)),
        hint = 'Add new tasks: give it another key, or none.';
    elsif _last + cardinality(_new) > max_tasks then
      raise exception using errcode = 'QF413',
        message = format('the batch has %s tasks; with %s more it would have more than the %s allowed', _last,
          cardinality(_new), max_tasks);
    end if;
    insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, needs_success)
    select _task_id, '', _last + n.n, n.task_id, true, false, (
      select c.needs_success from queues.child c
      where c.parent_id = _task_id and c.generation = 1 and c.step = '' order by c.number limit 1)
    from unnest(_new) with ordinality n(task_id, n);
  end loop;
end
$$;

comment on function queues.extend_batch(uuid[], uuid[], boolean[], bigint) is
  'Lets tasks wait for further ones, which were enqueued in this transaction or are in the batch already.';
