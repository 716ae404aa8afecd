-- Returns how many tasks have each status, of those that match the filters of find_tasks. Examines the newest 10,000
-- tasks of each status; with a filter 2,000, or 500 if it has to read documents or errors. "more" says that there are
-- others.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.count_tasks(
  queue text default null, type_prefix text default null, since timestamptz default null, words text default null,
  error_group text default null, payload_path text default null, search_errors boolean default true)
returns table (status text, tasks bigint, more boolean)
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
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _wanted constant queues.wanted_text := queues.check_search(words, error_group, payload_path, search_errors);
  _all constant boolean := coalesce(queue, type_prefix, since::text, words, error_group, payload_path, _namespace)
    is null;
  _most constant integer := case when _all then 10000
    when coalesce(words, error_group, payload_path) is null then 2000 else 500 end;
begin
  return query
  select s.status, count(*) filter (where s.matches), bool_or(s.n > _most)
  from (
    -- Not exists, for which PostgreSQL may read all tasks into a hash table.
    select s.status, s.n, s.n <= _most and (_all or (
      select true from queues.task t where t.task_id = s.task_id
        and queues.matches(t, count_tasks.queue, type_prefix, since, _namespace, null, _wanted) limit 1)) as matches
    from (
      select queues.status_of(null, null, null, r.attempt, r.run_at, _now, (
        select true from queues.wait w where w.task_id = r.task_id limit 1)) as status, r.task_id, r.n
      from (
        select r.*, row_number() over (order by r.task_id desc) as n
        from queues.ready r order by r.task_id desc limit _most + 1) r
      union all
      select case when l.started_at is null then 'claimed' else 'running' end, l.task_id, l.n
      from (
        select l.*, row_number() over (order by l.task_id desc) as n
        from queues.lease l order by l.task_id desc limit _most + 1) l
      union all
      select o.status, o.task_id, o.n
      from (values ('failed'), ('dead_letter'), ('cancelled')) v(status)
      cross join lateral (
        select o.status, o.task_id, row_number() over (order by o.task_id desc) as n
        from queues.outcome o where o.status = v.status and o.status <> 'succeeded'
        order by o.task_id desc limit _most + 1) o
      union all
      select 'succeeded', o.task_id, o.n
      from (
        select o.status, o.task_id, row_number() over (order by o.task_id desc) as n
        from queues.outcome o order by o.task_id desc limit _most + 1) o
      where o.status = 'succeeded' or o.n > _most) s) s
  group by s.status;
end
$$;

comment on function queues.count_tasks(text, text, timestamptz, text, text, text, boolean) is
  'Returns how many tasks have each status, of those that match the filters of find_tasks.';
