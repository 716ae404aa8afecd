-- Returns everything that happened to a send, in order, and what comes next. Used by holdfast process show.
-- Internal; comms.send_email_history and comms.send_sms_history are for holdfast_reader. Locks: nothing.
create or replace function comms.send_history(channel text, send_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with send as (
    select t.* from comms.send_task t
    where t.send_task_id = send_history.send_task_id and t.channel = send_history.channel),
  facts as (select f.* from send s cross join comms.read_facts(s.send_task_id) f)
  select h.at, h.what, h.reason, h.task_id from (
    select t.created_at as at, 0 as n, 'kicked off' as what,
      case when m.message_id is null then 'the message was erased' else format('to %s', m.recipient) end as reason,
      null::uuid as task_id
    from send t left join comms.message_content m on m.message_id = t.message_id
    union all
    select f.supervised_at, 1, format('run %s: %s', f.run, f.decision), f.reason, f.next_task_id
    from send t join comms.send_task_supervised f on f.send_task_id = t.send_task_id
    union all
    select f.scheduled_at, 2, format('attempt %s scheduled', f.attempt), format('for %s', f.run_at), f.task_id
    from send t join comms.send_task_scheduled f on f.send_task_id = t.send_task_id
    union all
    select f.failed_at, 3, format('attempt %s failed', f.attempt), format('%s: %s', f.kind, f.message)
      || case when f.outcome_unknown then ' (it may have been delivered)' else '' end, null
    from send t join comms.send_task_failed f on f.send_task_id = t.send_task_id
    union all
    select f.succeeded_at, 3, format('attempt %s succeeded', f.attempt),
      format('%s %s', f.provider, f.provider_message_id), null
    from send t join comms.send_task_succeeded f on f.send_task_id = t.send_task_id
    union all
    select f.reported_at, 4, format('reported as %s', f.report), f.reason, null
    from send t join comms.send_task_reported f on f.send_task_id = t.send_task_id
    union all
    select f.run_at, 8, format('next: attempt %s', f.attempt), 'waits to be made', f.task_id
    from facts k cross join send t join comms.send_task_scheduled f on f.send_task_id = t.send_task_id
    where f.run_at > queues.clock() and comms.attempt_result(f.send_task_id, f.attempt) is distinct from 'failed'
      and not k.has_succeeded and not k.has_ended
    union all
    select coalesce(r.run_at, last.next_run_at, t.scheduled_at), 9,
      format('next: run %s of the supervisor', k.runs + 1),
      case when k.runs = 0 and t.scheduled_at > queues.clock()
        then format('it is to be sent at %s', t.scheduled_at) end,
      k.next_task_id
    from facts k cross join send t
    left join comms.send_task_supervised last on last.send_task_id = t.send_task_id and last.run = k.runs
    left join queues.ready r on r.task_id = k.next_task_id
    where not k.has_ended) h
  order by h.n >= 8, h.at, h.n
$$;

comment on function comms.send_history(text, bigint) is
  'Returns everything that happened to a send, in order, and what comes next.';

create or replace function comms.send_email_history(send_email_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid) language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$ select h.at, h.what, h.reason, h.task_id from comms.send_history('email', send_email_task_id) h $$;
comment on function comms.send_email_history(bigint) is
  'Returns everything that happened to a send of an e-mail, in order, and what comes next.';

create or replace function comms.send_sms_history(send_sms_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid) language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$ select h.at, h.what, h.reason, h.task_id from comms.send_history('sms', send_sms_task_id) h $$;
comment on function comms.send_sms_history(bigint) is
  'Returns everything that happened to a send of a text message, in order, and what comes next.';
