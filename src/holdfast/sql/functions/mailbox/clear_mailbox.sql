-- Deletes up to 10,000 messages from the mailbox and returns how many.
-- For holdfast_operator. Locks: the messages, skipping those that another session holds.
create or replace function comms.clear_mailbox()
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _removed integer;
begin
  delete from comms.mailbox_message m where m.mailbox_message_id in (
    select old.mailbox_message_id from comms.mailbox_message old
    order by old.mailbox_message_id limit 10000 for update skip locked);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

comment on function comms.clear_mailbox() is 'Deletes up to 10,000 messages from the mailbox and returns how many.';
