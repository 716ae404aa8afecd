-- Records who is about to see the hidden values of a task or of a message of the mailbox; without either, those of all
-- tasks, for a while. The reason is required.
-- For holdfast_operator. Locks: none.
create or replace function queues.record_reveal(
  task_id uuid default null, reason text default null, address text default null,
  mailbox_message_id bigint default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if coalesce(btrim(reason), '') = '' then
    raise exception using errcode = 'QF400', message = 'a reason is required to see hidden values',
      hint = 'It is recorded with the name of the caller.';
  elsif num_nonnulls(task_id, mailbox_message_id) > 1 then
    raise exception using errcode = 'QF400', message = 'give either task_id or mailbox_message_id, not both';
  elsif task_id is not null then
    perform queues.check_task_owner(task_id);
  elsif mailbox_message_id is not null
    and not exists (select from comms.mailbox_message m where m.mailbox_message_id = record_reveal.mailbox_message_id)
  then
    raise exception using errcode = 'QF404',
      message = format('there is no message %s in the mailbox', mailbox_message_id),
      hint = 'The mailbox keeps the newest messages only.';
  end if;
  insert into queues.access_act (act, occurred_at, actor, task_id, mailbox_message_id, address, reason)
  values ('revealed', queues.clock(), queues.actor(), task_id, mailbox_message_id, left(address, 200),
    left(reason, 2000));
end
$$;

comment on function queues.record_reveal(uuid, text, text, bigint) is
  'Records who is about to see the hidden values of a task, of a message of the mailbox, or of all tasks.';
