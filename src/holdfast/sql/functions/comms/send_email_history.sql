-- Returns everything that happened to a send of an e-mail, in order, and what comes next. Used by holdfast process
-- show.
-- For holdfast_reader. Locks: nothing.
create or replace function comms.send_email_history(send_email_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select h.at, h.what, h.reason, h.task_id from (
    select t.created_at as at, 0 as n, 'kicked off' as what,
      case when m.message_id is null then 'the message was erased' else format('to %s', m.recipient) end as reason, null::uuid as task_id
    from comms.send_email_task t left join comms.email_message m on m.message_id = t.message_id
    where t.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.supervised_at, 1, format('run %s: %s', f.run, f.decision), f.reason, f.next_task_id
    from comms.send_email_task_supervised f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.scheduled_at, 2, format('attempt %s scheduled', f.attempt), format('for %s', f.run_at), f.task_id
    from comms.send_email_task_scheduled f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.failed_at, 3, format('attempt %s failed', f.attempt),
      format('%s: %s', f.kind, f.message) || case when f.outcome_unknown then ' (it may have been delivered)' else '' end, null
    from comms.send_email_task_failed f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.succeeded_at, 3, format('attempt %s succeeded', f.attempt), format('%s %s', f.provider, f.provider_message_id), null
    from comms.send_email_task_succeeded f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.reported_at, 4, format('reported as %s', f.report), f.reason, null
    from comms.send_email_task_reported f where f.send_email_task_id = send_email_history.send_email_task_id
    union all
    select f.run_at, 8, format('next: attempt %s', f.attempt), 'waits to be made', f.task_id
    from comms.send_email_task_scheduled f
    where f.send_email_task_id = send_email_history.send_email_task_id and f.run_at > queues.clock()
      and not comms.has_email_attempt_failed(f.send_email_task_id, f.attempt)
      and not comms.has_send_email_task_succeeded(f.send_email_task_id) and not comms.has_send_email_task_ended(f.send_email_task_id)
    union all
    select coalesce(r.run_at, last.next_run_at, t.scheduled_at), 9, format('next: run %s of the supervisor', coalesce(last.run, 0) + 1),
      case when last.run is null and t.scheduled_at > queues.clock() then format('it is to be sent at %s', t.scheduled_at) end, last.next_task_id
    from comms.send_email_task t
    left join lateral (
      select s.run, s.next_run_at, s.next_task_id from comms.send_email_task_supervised s
      where s.send_email_task_id = t.send_email_task_id order by s.run desc limit 1) last on true
    left join queues.ready r on r.task_id = last.next_task_id
    where t.send_email_task_id = send_email_history.send_email_task_id
      and not comms.has_send_email_task_ended(t.send_email_task_id)) h
  order by h.n >= 8, h.at, h.n
$$;

comment on function comms.send_email_history(bigint) is
  'Returns everything that happened to a send of an e-mail, in order, and what comes next.';
