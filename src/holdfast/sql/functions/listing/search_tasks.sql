-- Returns the newest tasks that match a search text: an id, a key, part of a type, or part of an error message.
-- Searches the keys of at most 10,000 types, the types of the newest 50,000 tasks, and the last 10,000 errors.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.search_tasks(words text, max_tasks integer default 50)
returns setof queues.task_status
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _id constant uuid := case when words ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then words::uuid end;
  _ids uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 1000';
  elsif words is null or length(words) not between 1 and 500 then
    raise exception using errcode = 'QF400', message = 'words must be 1 to 500 characters';
  end if;
  _ids := array(
    -- The types that have keys, with one index lookup for each.
    with recursive keyed(type, n) as (
      (select k.type, 1 from queues.task_key k order by k.type limit 1)
      union all
      select (select k.type from queues.task_key k where k.type > keyed.type order by k.type limit 1), keyed.n + 1
      from keyed where keyed.type is not null and keyed.n < 10000)
    select _id where _id is not null
    union
    select k.task_id from keyed
    join queues.task_key k on k.type = keyed.type and k.idempotency_key = words
      and (_namespace is null or k.namespace = _namespace)
    union
    select found.task_id
    from (
      select t.task_id
      from (select t.task_id, t.type, t.namespace from queues.task t order by t.task_id desc limit 50000) t
      where strpos(lower(t.type), lower(words)) > 0 and (_namespace is null or t.namespace = _namespace)
      limit max_tasks) found
    union
    select e.task_id
    from (select e.task_id, e.message from queues.error e order by e.error_id desc limit 10000) e
    where strpos(lower(e.message), lower(words)) > 0);
  return query
  select s.* from queues.task_status s
  where s.task_id = any (array(
    select t.task_id from queues.task t
    where t.task_id = any (_ids) and (_namespace is null or t.namespace = _namespace)
    order by t.task_id desc limit max_tasks))
  order by s.task_id desc;
end
$$;

comment on function queues.search_tasks(text, integer) is
  'Returns the newest tasks that match a search text: an id, a key, part of a type, or part of an error message.';
