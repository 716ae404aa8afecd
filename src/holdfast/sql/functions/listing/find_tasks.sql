-- Returns the ids of one page of tasks, newest first, that match all filters and come before the given task_id, and
-- where the next page begins: its before, or null at the end. Examines at most 50,000 tasks, or max_examined, so a page
-- may be short, or even empty, although others follow. The filters words, error_group and payload_path have to read
-- documents or errors: with them, it examines at most 10,000. Starts from the table or index that the filters select,
-- so that a rare status is found without reading common ones. A task whose id or key is exactly words is found however
-- old it is, and one whose id ends with these eight or more digits among the newest 200,000.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.find_tasks(
  status text default null,
  queue text default null,
  type_prefix text default null,
  since timestamptz default null,
  before uuid default null,
  max_tasks integer default 50,
  spec_hash text default null,
  words text default null,
  error_group text default null,
  payload_path text default null,
  search_errors boolean default true,
  max_examined integer default 50000,
  out task_ids uuid[],
  out next uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _most constant integer := least(max_examined,
    case when coalesce(words, error_group, payload_path) is null then 50000 else 10000 end);
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _before constant uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  _hash bytea;
  _wanted queues.wanted_text;
  _exact uuid[];
  _size integer;
  _end uuid;
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  elsif max_examined is null or max_examined < 1 then
    raise exception using errcode = 'QF400', message = 'max_examined must be at least 1';
  elsif status not in ('scheduled', 'suspended', 'pending', 'retrying', 'claimed', 'running', 'succeeded', 'failed',
      'dead_letter', 'cancelled') then
    raise exception using errcode = 'QF400', message = format('status %s is unknown', to_json(status)),
      hint = 'Allowed: scheduled, suspended, pending, retrying, claimed, running, succeeded, failed, dead_letter, '
        'cancelled.';
  elsif spec_hash !~ '^[0-9a-fA-F]{64}$' then
    raise exception using errcode = 'QF400',
      message = format('spec_hash %s is not 64 hexadecimal digits', to_json(spec_hash));
  end if;
  _hash := decode(spec_hash, 'hex');
  _wanted := queues.check_search(words, error_group, payload_path, search_errors);

  -- One more than requested, to find out whether there is another page.
  if status = 'suspended' then
    task_ids := array(
      select w.task_id
      from (
        select distinct on (w.task_id) w.task_id from queues.wait w
        where w.task_id < _before order by w.task_id desc limit _most) w
      cross join lateral (select r.attempt, r.run_at from queues.ready r where r.task_id = w.task_id offset 0) r
      cross join lateral (select * from queues.task t where t.task_id = w.task_id offset 0) t
      where queues.status_of(null, null, null, r.attempt, r.run_at, _now, true) = 'suspended'
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by w.task_id desc limit max_tasks + 1);
    next := (
      select distinct on (w.task_id) w.task_id from queues.wait w
      where w.task_id < _before and cardinality(task_ids) <= max_tasks
      order by w.task_id desc offset _most - 1 limit 1);
  elsif status in ('scheduled', 'pending', 'retrying') then
    task_ids := array(
      select r.task_id
      from (select r.* from queues.ready r where r.task_id < _before order by r.task_id desc limit _most) r
      cross join lateral (select * from queues.task t where t.task_id = r.task_id offset 0) t
      where queues.status_of(null, null, null, r.attempt, r.run_at, _now, (
        select true from queues.wait w where w.task_id = r.task_id limit 1)) = find_tasks.status
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by r.task_id desc limit max_tasks + 1);
    next := (
      select r.task_id from queues.ready r where r.task_id < _before and cardinality(task_ids) <= max_tasks
      order by r.task_id desc offset _most - 1 limit 1);
  elsif status in ('claimed', 'running') then
    task_ids := array(
      select l.task_id
      from (select l.* from queues.lease l where l.task_id < _before order by l.task_id desc limit _most) l
      cross join lateral (select * from queues.task t where t.task_id = l.task_id offset 0) t
      where (l.started_at is not null) = (find_tasks.status = 'running')
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by l.task_id desc limit max_tasks + 1);
    next := (
      select l.task_id from queues.lease l where l.task_id < _before and cardinality(task_ids) <= max_tasks
      order by l.task_id desc offset _most - 1 limit 1);
  elsif status in ('failed', 'dead_letter', 'cancelled') then
    task_ids := array(
      select o.task_id
      from (
        select o.task_id from queues.outcome o
        where o.status = find_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        order by o.task_id desc limit _most) o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by o.task_id desc limit max_tasks + 1);
    next := (
      select o.task_id from queues.outcome o
      where o.status = find_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        and cardinality(task_ids) <= max_tasks
      order by o.task_id desc offset _most - 1 limit 1);
  elsif status = 'succeeded' then
    task_ids := array(
      select o.task_id
      from (
        select o.task_id, o.status from queues.outcome o
        where o.task_id < _before order by o.task_id desc limit _most) o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = find_tasks.status
        and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
      order by o.task_id desc limit max_tasks + 1);
    next := (
      select o.task_id from queues.outcome o where o.task_id < _before and cardinality(task_ids) <= max_tasks
      order by o.task_id desc offset _most - 1 limit 1);
  else
    -- First a few, which is enough for most pages, then all others: a range of ids is read without building whole rows.
    task_ids := '{}';
    foreach _size in array array[least(_most, 1000), _most - least(_most, 1000)] loop
      exit when cardinality(task_ids) > max_tasks or _size = 0;
      _end := (
        select t.task_id from queues.task t where t.task_id < coalesce(next, _before)
        order by t.task_id desc offset _size - 1 limit 1);
      task_ids := task_ids || array(
        select t.task_id from queues.task t
        where t.task_id < coalesce(next, _before)
          and t.task_id >= coalesce(_end, '00000000-0000-0000-0000-000000000000')
          and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)
        order by t.task_id desc limit max_tasks + 1 - cardinality(task_ids));
      next := _end;
      exit when next is null;
    end loop;
  end if;
  if cardinality(task_ids) > max_tasks then
    task_ids := task_ids[:max_tasks];
    next := task_ids[max_tasks];
  end if;
  if words is not null and before is null then
    _wanted.words := null;
    _exact := array(
      select s.task_id from queues.task_status s
      where s.task_id = any (queues.tasks_named(words))
        and (find_tasks.status is null or s.status = find_tasks.status)
        and exists (
          select from queues.task t where t.task_id = s.task_id
            and queues.matches(t, find_tasks.queue, type_prefix, since, _namespace, _hash, _wanted)));
    if _exact <> '{}' then
      task_ids := array(select distinct id from unnest(task_ids || _exact) id order by id desc);
    end if;
  end if;
end
$$;

comment on function queues.find_tasks(
  text, text, text, timestamptz, uuid, integer, text, text, text, text, boolean, integer) is
  'Returns the ids of one page of tasks, newest first, that match all filters, and where the next page begins.';
