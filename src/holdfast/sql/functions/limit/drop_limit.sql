-- Removes the limit of a queue or a type and says whether there was one. What runs goes on counting under what applies then, such as one
-- task at a time of a concurrency key. For holdfast_operator. Locks: the limit's row of queues.limit_lock, then the limit; waits for five
-- seconds at most.
create or replace function queues.drop_limit(subject text, name text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.hold_limit(subject, name);
  delete from queues.task_limit t where t.subject = drop_limit.subject and t.name = drop_limit.name;
  if not found then
    return false;
  end if;
  perform queues.enter_running(array(
    select l.lane_id from queues.lane l
    where drop_limit.subject = 'queue' and l.queue = drop_limit.name or drop_limit.subject = 'type' and l.type = drop_limit.name),
    queues.clock());
  return true;
end
$$;

comment on function queues.drop_limit(text, text) is 'Removes the limit of a queue or a type and says whether there was one.';
