-- Sends a signal to the run with this type and idempotency key in the caller's namespace, as signal does.
-- For holdfast_client, holdfast_process and holdfast_operator. Locks: as signal.
create or replace function queues.signal_key(
  type text, idempotency_key text, name text, payload jsonb default 'null', key text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _task_id uuid;
begin
  select k.task_id into _task_id from queues.task_key k
  where k.type = signal_key.type and k.idempotency_key = signal_key.idempotency_key
    and k.namespace = queues.namespace();
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no task of type %s with the key %s', to_json(type), to_json(idempotency_key)),
      hint = 'Enqueue the run with this key first, in the same namespace; retention may have removed it.';
  end if;
  return queues.signal(_task_id, name, payload, key);
end
$$;

comment on function queues.signal_key(text, text, text, jsonb, text) is
  'Sends a signal to the run with this type and idempotency key in the caller''s namespace, as signal does.';
