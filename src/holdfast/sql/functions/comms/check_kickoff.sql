-- Refuses a send that cannot be started. The message must exist in the caller's namespace and not be erased, and the
-- terms must be valid.
-- Internal. Locks: the content of the message, shared, so that it cannot be erased meanwhile.
create or replace function comms.check_kickoff(
  message_id bigint, channel text, scheduled_at timestamptz, max_attempts integer, when_unknown text, retry_for interval)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  if max_attempts is null or max_attempts not between 1 and 20 then
    raise exception using errcode = 'QF400', message = 'max_attempts must be between 1 and 20';
  elsif when_unknown is null or when_unknown not in ('retry', 'stop') then
    raise exception using errcode = 'QF400', message = format('when_unknown %s is neither retry nor stop', coalesce(to_json(when_unknown)::text, 'null'));
  elsif retry_for is null or retry_for not between interval '0' and interval '31 days' then
    raise exception using errcode = 'QF400', message = 'retry_for must be between 0 and 31 days';
  end if;
  if scheduled_at is not null then
    perform queues.parse_time('scheduled_at', to_jsonb(scheduled_at) #>> '{}', queues.clock());
  end if;
  perform from comms.message m
  where m.message_id = check_kickoff.message_id and m.channel = check_kickoff.channel
    and (m.namespace = queues.namespace() or pg_has_role(session_user, 'holdfast_worker', 'member')
      or pg_has_role(session_user, 'holdfast_operator', 'member'));
  if found then
    if channel = 'email' then
      perform from comms.email_message c where c.message_id = check_kickoff.message_id for key share;
    else
      perform from comms.sms_message c where c.message_id = check_kickoff.message_id for key share;
    end if;
  end if;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no %s message %s', channel, coalesce(message_id::text, 'null')),
      hint = format('Create one with comms.create_%s_message. It may belong to another namespace.', channel);
  end if;
end
$$;

comment on function comms.check_kickoff(bigint, text, timestamptz, integer, text, interval) is
  'Refuses a send that cannot be started.';
