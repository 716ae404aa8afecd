-- Everything that happened to a send of an e-mail, in order: for holdfast process show. For holdfast_reader. Locks: nothing.
create or replace function comms.send_email_history(send_email_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select h.at, h.what, h.reason, h.task_id from (
    select t.created_at as at, 0 as n, 'kicked off' as what, format('to %s', m.recipient) as reason, null::uuid as task_id
    from comms.send_email_task t join comms.email_message m on m.message_id = t.message_id
    where t.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.supervised_at, 1, format('run %s: %s', f.run, f.decision), f.reason, f.next_task_id
    from comms.send_email_task_supervised f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.scheduled_at, 2, format('attempt %s scheduled', f.attempt), null, f.task_id
    from comms.send_email_task_scheduled f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.failed_at, 3, format('attempt %s failed', f.attempt), f.message, null
    from comms.send_email_task_failed f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.succeeded_at, 3, format('attempt %s succeeded', f.attempt), format('%s %s', f.provider, f.provider_message_id), null
    from comms.send_email_task_succeeded f where f.send_email_task_id = send_email_history.send_email_task_id) h
  order by h.at, h.n
$$;

comment on function comms.send_email_history(bigint) is 'Everything that happened to a send of an e-mail, in order.';
