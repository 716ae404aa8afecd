-- Notifies those who wait for the end of a process, on channel holdfast_done with its wait_key.
-- Internal.
create or replace function queues.tell_process_waiters(process text, process_id bigint)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _key constant uuid := (
    select i.wait_key from queues.process_instance i
    where i.process = tell_process_waiters.process and i.process_id = tell_process_waiters.process_id);
begin
  if exists (select from queues.waiter w where w.task_id = _key) then
    perform pg_notify('holdfast_done', _key::text);
    -- A row that an open call of watch_processes holds is left for the sweep.
    delete from queues.waiter w
    where w.task_id in (select held.task_id from queues.waiter held where held.task_id = _key for update skip locked);
  end if;
end
$$;

comment on function queues.tell_process_waiters(text, bigint) is
  'Notifies those who wait for the end of a process, on channel holdfast_done with its wait_key.';
