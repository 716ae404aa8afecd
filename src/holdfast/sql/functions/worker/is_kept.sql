-- Whether a worker keeps the door of a queue: it finds what comes, and tells the others. Locks: the door, for a moment, without waiting.
create or replace function queues.is_kept(queue text)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _door constant bigint := queues.door_of(queue);
begin
  -- Not until the end of the transaction, which may be far: nobody could keep the door until then.
  if pg_try_advisory_lock_shared(_door) then
    perform pg_advisory_unlock_shared(_door);
    return false;
  end if;
  return true;
end
$$;

comment on function queues.is_kept(text) is 'Whether a worker keeps the door of a queue: it finds what comes, and tells the others.';
