-- Removes the limit of a queue or type and returns whether it existed. Running tasks then count under the remaining
-- limits, such as one task at a time per concurrency key.
-- For holdfast_operator. Locks: the limit's row of queues.limit_lock, then the limit; waits for at most five seconds.
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
  perform queues.apply_limit(subject, name);
  return true;
end
$$;

comment on function queues.drop_limit(text, text) is
  'Removes the limit of a queue or type and returns whether it existed.';
