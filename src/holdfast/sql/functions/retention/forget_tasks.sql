-- Deletes tasks and everything that belongs to them. Every table with rows per task must be listed here. The ids are in
-- order: most tasks have nothing in most of these tables, and one lookup of the range finds that out for all of them.
-- Internal: called by prune, which has locked their outcomes and deletions. Locks: keys, which no other transaction can
-- hold meanwhile.
create or replace function queues.forget_tasks(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _first constant uuid := task_ids[1];
  _last constant uuid := task_ids[cardinality(task_ids)];
begin
  delete from queues.outcome o where o.task_id = any (task_ids);
  if exists (select from queues.deletion d where d.task_id between _first and _last) then
    delete from queues.deletion d where d.task_id = any (task_ids);
  end if;
  if exists (select from queues.reusable r where r.task_id between _first and _last) then
    delete from queues.reusable r where r.task_id = any (task_ids);
  end if;
  if exists (select from queues.wait w where w.task_id between _first and _last) then
    delete from queues.wait w where w.task_id = any (task_ids);
  end if;
  if exists (select from queues.chore c where c.task_id between _first and _last) then
    delete from queues.chore c where c.task_id = any (task_ids);
  end if;
  if exists (select from queues.wait w where w.on_task between _first and _last) then
    perform queues.mark_joins(task_ids);
  end if;
  if exists (select from queues.unique_task u where u.task_id between _first and _last) then
    delete from queues.unique_task u where u.task_id = any (task_ids);
  end if;
  perform set_config('holdfast.retention', 'on', true);
  if exists (select from queues.step s where s.task_id between _first and _last) then
    delete from queues.step s where s.task_id = any (task_ids);
  end if;
  if exists (select from queues.signal s where s.task_id between _first and _last) then
    delete from queues.signal s where s.task_id = any (task_ids);
  end if;
  if exists (select from queues.generation g where g.task_id between _first and _last) then
    delete from queues.generation g where g.task_id = any (task_ids);
  end if;
  if exists (select from queues.child c where c.parent_id between _first and _last) then
    delete from queues.child c where c.parent_id = any (task_ids);
  end if;
  if exists (select from queues.error e where e.task_id between _first and _last) then
    delete from queues.error e where e.task_id = any (task_ids);
  end if;
  if exists (select from queues.act a where a.task_id between _first and _last) then
    delete from queues.act a where a.task_id = any (task_ids);
  end if;
  with forgotten as (
    delete from queues.task t where t.task_id = any (task_ids)
    returning t.type, t.idempotency_key, t.namespace, t.task_id)
  delete from queues.task_key k using (select f.* from forgotten f where f.idempotency_key is not null offset 0) f
  where k.type = f.type and k.idempotency_key = f.idempotency_key and k.namespace = f.namespace
    and k.task_id = f.task_id;
  perform set_config('holdfast.retention', _retention, true);
end
$$;

comment on function queues.forget_tasks(uuid[]) is 'Deletes tasks and everything that belongs to them.';
