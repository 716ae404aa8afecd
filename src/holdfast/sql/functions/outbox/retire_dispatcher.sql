-- Removes a dispatcher from the registry and returns whether it was registered. Also removes dispatchers that were
-- silent for an hour. Its leases are not changed: it releases them itself, or they end.
-- For holdfast_dispatcher. Locks: the dispatchers' rows.
create or replace function queues.retire_dispatcher(dispatcher_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from queues.dispatcher d
  where d.dispatcher_id in (
    select silent.dispatcher_id from queues.dispatcher silent
    where silent.last_seen < queues.clock() - interval '1 hour' for update skip locked);
  delete from queues.dispatcher d where d.dispatcher_id = retire_dispatcher.dispatcher_id;
  return found;
end
$$;

comment on function queues.retire_dispatcher(text) is
  'Removes a dispatcher from the registry and returns whether it was registered.';
