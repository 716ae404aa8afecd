-- Returns whether a task has what a search asks for: words in its id, type, keys or error messages, a last error of
-- this group, and a payload for which the JSON path finds something.
-- Internal: called by matches.
create or replace function queues.contains(task queues.task, wanted queues.wanted_text)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _error queues.error;
  _group text;
begin
  if wanted.type <> task.type then
    return false;
  end if;
  if wanted.path is not null and not coalesce(jsonb_path_exists(task.payload, wanted.path, '{}', true), false) then
    return false;
  end if;
  if wanted.error_group is not null then
    select e.* into _error from queues.error e where e.task_id = task.task_id order by e.error_id desc limit 1;
    if not found then
      return false;
    end if;
    _group := queues.group_of_error(task.type, _error);
    -- The group of all that add_to_groups gives no group of its own is named after the type.
    if _group <> wanted.error_group and (wanted.error_group <> md5(task.type)
      or starts_with(_error.kind, 'killed_on_') or _error.kind = 'cancelled_by_handler'
      or exists (select from queues.error_group g where g.error_group = _group))
    then
      return false;
    end if;
  end if;
  return wanted.words is null
    or strpos(lower(task.type), wanted.words) > 0
    or strpos(lower(task.idempotency_key), wanted.words) > 0
    or strpos(lower(task.concurrency_key), wanted.words) > 0
    or (wanted.words ~ '^[0-9a-f-]{6,36}$' and strpos(task.task_id::text, wanted.words) > 0)
    or (wanted.search_errors and exists (
      select from queues.error e where e.task_id = task.task_id and strpos(lower(e.message), wanted.words) > 0));
end
$$;

comment on function queues.contains(queues.task, queues.wanted_text) is
  'Returns whether a task has what a search asks for: words, an error group, a JSON path.';
