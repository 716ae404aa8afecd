-- Returns one page of tasks, newest first, that match all filters and come before the given task_id. Starts from the
-- table or index that the filters select, so that a rare status is found without reading common ones.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.list_tasks(
  status text default null,
  queue text default null,
  type_prefix text default null,
  since timestamptz default null,
  before uuid default null,
  max_tasks integer default 50,
  spec_hash text default null)
returns setof queues.task_status
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _before constant uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  _hash bytea;
  _ids uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  elsif status not in ('scheduled', 'pending', 'retrying', 'claimed', 'running', 'succeeded', 'failed', 'dead_letter', 'cancelled') then
    raise exception using errcode = 'QF400', message = format('status %s is unknown', to_json(status)),
      hint = 'Allowed: scheduled, pending, retrying, claimed, running, succeeded, failed, dead_letter, cancelled.';
  elsif spec_hash !~ '^[0-9a-fA-F]{64}$' then
    raise exception using errcode = 'QF400', message = format('spec_hash %s is not 64 hexadecimal digits', to_json(spec_hash));
  end if;
  _hash := decode(spec_hash, 'hex');

  if status in ('scheduled', 'pending', 'retrying') then
    _ids := array(
      select r.task_id from queues.ready r
      cross join lateral (select * from queues.task t where t.task_id = r.task_id offset 0) t
      where r.task_id < _before and queues.status_of(null, null, null, r.attempt, r.run_at, _now) = list_tasks.status
        and queues.matches(t, list_tasks.queue, type_prefix, since, _namespace, _hash)
      order by r.task_id desc limit max_tasks);
  elsif status in ('claimed', 'running') then
    _ids := array(
      select l.task_id from queues.lease l
      cross join lateral (select * from queues.task t where t.task_id = l.task_id offset 0) t
      where l.task_id < _before and (l.started_at is not null) = (list_tasks.status = 'running')
        and queues.matches(t, list_tasks.queue, type_prefix, since, _namespace, _hash)
      order by l.task_id desc limit max_tasks);
  elsif status in ('failed', 'dead_letter', 'cancelled') then
    _ids := array(
      select o.task_id from queues.outcome o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = list_tasks.status and o.status <> 'succeeded' and o.task_id < _before
        and queues.matches(t, list_tasks.queue, type_prefix, since, _namespace, _hash)
      order by o.task_id desc limit max_tasks);
  elsif type_prefix is not null then
    _ids := array(
      select found.task_id
      from queues.known_types(type_prefix) known(type)
      cross join lateral (
        select t.task_id from queues.task t
        where t.type = known.type and t.task_id < _before
          and queues.matches(t, list_tasks.queue, type_prefix, since, _namespace, _hash)
          -- Avoids exists, which the planner may implement by reading the whole table once.
          and (list_tasks.status is null or (
            select true from queues.outcome o where o.task_id = t.task_id and o.status = list_tasks.status limit 1))
        order by t.task_id desc limit max_tasks) found
      order by found.task_id desc limit max_tasks);
  elsif status is not null then
    _ids := array(
      select o.task_id from queues.outcome o
      cross join lateral (select * from queues.task t where t.task_id = o.task_id offset 0) t
      where o.status = list_tasks.status and o.task_id < _before
        and queues.matches(t, list_tasks.queue, null, since, _namespace, _hash)
      order by o.task_id desc limit max_tasks);
  else
    _ids := array(
      select t.task_id from queues.task t
      where t.task_id < _before and queues.matches(t, list_tasks.queue, null, since, _namespace, _hash)
      order by t.task_id desc limit max_tasks);
  end if;
  return query select s.* from queues.task_status s where s.task_id = any (_ids) order by s.task_id desc;
end
$$;

comment on function queues.list_tasks(text, text, text, timestamptz, uuid, integer, text) is
  'Returns one page of tasks, newest first, that match all filters and come before the given task_id.';
