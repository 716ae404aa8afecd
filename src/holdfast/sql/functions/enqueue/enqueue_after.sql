-- Enqueues a batch like enqueue_many. Each of its tasks waits until all the given tasks have ended. With the condition
-- succeeded, it is cancelled if one of them ends otherwise, and so are those after it; with ended, it runs in any case.
-- Without tasks to wait for, it is due at once.
-- For holdfast_client and holdfast_process. Locks: as enqueue_many. Security invoker, so that the rights of the actual
-- caller apply.
create or replace function queues.enqueue_after(tasks jsonb, after uuid[], condition text default 'succeeded')
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _arrangement constant jsonb := jsonb_build_object('after', coalesce(to_jsonb(after), '[]'), 'when', condition);
begin
  -- Anything else is refused by enqueue_many. The caller may not call check_batch.
  if jsonb_typeof(tasks) = 'array' and not jsonb_path_exists(tasks, 'strict $[*] ? (@.type() != "object")') then
    tasks := (
      select coalesce(jsonb_agg(t.element || _arrangement order by t.n), '[]')
      from jsonb_array_elements(tasks) with ordinality t(element, n));
  end if;
  return query select e.task_id, e.created from queues.enqueue_many(tasks) e;
end
$$;

comment on function queues.enqueue_after(jsonb, uuid[], text) is
  'Enqueues a batch whose tasks wait until all the given tasks have ended.';
