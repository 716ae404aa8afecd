-- Records an event of another system and returns true the first time in this namespace, false for a duplicate. Runs in
-- the caller's transaction. Waits for another open transaction of the same namespace that has received the same event.
-- For holdfast_client and holdfast_worker. Locks: the event.
create or replace function queues.receive(event_id text, source text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if event_id is null or source is null then
    raise exception using errcode = 'QF400', message = 'event_id and source must not be null';
  end if;
  perform queues.check_attribute('event_id', event_id);
  perform queues.check_attribute('source', source);
  insert into queues.received_event (namespace, source, event_id, received_at)
  values (queues.namespace(), source, event_id, queues.clock()) on conflict do nothing;
  return found;
end
$$;

comment on function queues.receive(text, text) is
  'Records an event of another system and returns true the first time in this namespace, false for a duplicate.';
