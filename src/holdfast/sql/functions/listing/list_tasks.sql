-- Returns one page of tasks, newest first, that match all filters and come before the given task_id. Examines at most
-- 50,000 tasks: find_tasks also returns where the next page begins.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.list_tasks(
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
  search_errors boolean default true)
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
  _ids constant uuid[] := (
    select f.task_ids from queues.find_tasks(
      list_tasks.status, list_tasks.queue, type_prefix, since, before, max_tasks, list_tasks.spec_hash, words,
      error_group, payload_path, search_errors) f);
begin
  return query select s.* from queues.task_status s where s.task_id = any (_ids) order by s.task_id desc;
end
$$;

comment on function queues.list_tasks(text, text, text, timestamptz, uuid, integer, text, text, text, text, boolean) is
  'Returns one page of tasks, newest first, that match all filters and come before the given task_id.';
