-- Makes tasks that have not begun wait until all the given tasks have ended, as enqueue_after does. A task for which
-- others wait already is refused, so that no task can wait for itself.
-- Those tasks are in the given namespace, or in that of the session; an operator may name all.
-- Internal: called by insert_arranged, which has inserted the tasks: no other transaction can hold their ready rows.
create or replace function queues.hold_back(
  task_ids uuid[], after uuid[], condition text default 'succeeded', namespace text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _far constant timestamptz := _now + interval '90 years';
  _namespace constant text := coalesce(hold_back.namespace, queues.namespace());
  _any constant boolean := hold_back.namespace is null and queues.has_role('operator');
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_children');
  _missing uuid;
  _places tid[];
  _run_ats timestamptz[];
begin
  if condition is null or condition not in ('succeeded', 'ended') then
    raise exception using errcode = 'QF400',
      message = format('condition is %s: expected succeeded or ended', to_json(condition));
  elsif cardinality(after) > _most then
    raise exception using errcode = 'QF413',
      message = format('a task can wait for at most %s others, not for %s', _most, cardinality(after));
  end if;
  select g.task_id into _missing from unnest(task_ids || after) g(task_id)
  where (
    select true from queues.task t
    where t.task_id = g.task_id and (_any or t.namespace = _namespace) limit 1) is null limit 1;
  if found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(_missing::text, 'null')),
      hint = 'Name tasks that were enqueued before, in the same namespace; retention may have removed it.';
  elsif coalesce(cardinality(after), 0) = 0 then
    return;
  end if;
  select g.task_id into _missing from unnest(task_ids) g(task_id)
  where (select true from queues.ready r where r.task_id = g.task_id and r.attempt = 0 limit 1) is null
    or (select true from queues.child c where c.child_id = g.task_id and c.step = '' limit 1)
    or (select true from queues.wait w where w.task_id = g.task_id limit 1) limit 1;
  if found then
    raise exception using errcode = 'QF412',
      message = format('task %s cannot wait for others: it has begun, or others wait for it already', _missing),
      hint = 'Name the tasks to wait for when it is enqueued.';
  end if;

  insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, needs_success)
  select t.task_id, '', a.n, a.task_id, true, false, condition = 'succeeded'
  from (select distinct g.task_id from unnest(task_ids) g(task_id)) t
  cross join unnest(after) with ordinality a(task_id, n);
  insert into queues.wait (task_id, name, until, on_task, number, policy)
  select r.task_id, '', r.run_at, after[1], 1, condition from queues.ready r where r.task_id = any (task_ids);
  select array_agg(r.ctid), array_agg(_far) into _places, _run_ats from queues.ready r where r.task_id = any (task_ids);
  perform queues.move_ready(_places, _run_ats, null);
  -- Those that have ended before are seen now, by the first 1,000; those that end until the commit are seen after it.
  -- One of them that did not succeed leads to a cancellation by the engine: this transaction may stay open, and must
  -- not hold that one.
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", _now, g.task_id from unnest(task_ids) g(task_id);
  perform queues.settle_joins('{}', task_ids[:1000], _now);
end
$$;

comment on function queues.hold_back(uuid[], uuid[], text, text) is
  'Makes tasks that have not begun wait until all the given tasks have ended.';
