-- Enqueues a batch like enqueue_many. Each of its tasks waits until all the given tasks have ended. With the condition
-- succeeded, it is cancelled if one of them ends otherwise, and so are those after it; with ended, it runs in any case.
-- Without tasks to wait for, it is due at once.
-- For holdfast_client and holdfast_process. Locks: keys. Security invoker, like enqueue_many, so that the rights of the
-- actual caller apply.
create or replace function queues.enqueue_after(tasks jsonb, after uuid[], condition text default 'succeeded')
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids uuid[];
  _created boolean[];
  _new uuid[];
begin
  select array_agg(e.task_id), array_agg(e.created) into _ids, _created from queues.enqueue_many(tasks) e;
  _new := array(select n.task_id from unnest(_ids, _created) n(task_id, created) where n.created);
  if _new <> '{}' then
    perform queues.hold_back(_new, after, condition);
  end if;
  return query select n.task_id, n.created from unnest(_ids, _created) n(task_id, created);
end
$$;

comment on function queues.enqueue_after(jsonb, uuid[], text) is
  'Enqueues a batch whose tasks wait until all the given tasks have ended.';
