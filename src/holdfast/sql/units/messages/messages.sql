-- E-mails and text messages: a send is a business process that takes one message to its end. The functions for the two
-- channels only name the channel; what they call is written once.
-- Invariant: everything that happens to a send is a fact, a row that is written once. The supervisor decides from the
-- facts alone, so a repeated run decides the same. A send ends once, and an attempt has at most one result. While its
-- key is remembered, a message counts once under the caps. Only the address and the content of a message can be
-- removed, and then with a record of it.
-- Lock order: the root row of the send, the ready row of its supervisor, the row of the process. Caps: the key, then
-- the counts of the recipient, of the country and of all messages. Erasure: contents by message_id, copies in the
-- mailbox, counts.
-- At the same time: the supervisor and the handlers of an attempt lock the root row first, so a decision misses no
-- result. Handlers may be repeated: the first result stays. A supervisor of which another run has taken the place does
-- nothing. A send that is started while its message is erased either comes first, and fails later because its content
-- is gone, or is refused.

-- Counts one message before it is sent, or returns which cap is reached and for how long, without counting. The same
-- key counts once.
-- For holdfast_worker. Locks: the key, then the counts of the recipient, the country and all messages, in this order,
-- so that the count that all sends share is locked last.
create or replace function comms.reserve_send(channel text, recipient text, idempotency_key text)
returns table (reserved boolean, scope text, period interval, most integer, retry_after interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _cap record;
  _count comms.send_count;
begin
  if channel is null or channel not in ('email', 'sms') then
    raise exception using errcode = 'QF400', message = format('channel %s is unknown', to_json(channel)),
      hint = 'Allowed: email, sms.';
  elsif coalesce(recipient, '') = '' or coalesce(idempotency_key, '') = '' then
    raise exception using errcode = 'QF400', message = 'recipient and idempotency_key must not be empty';
  end if;

  insert into comms.send_reservation (idempotency_key, reserved_at) values (reserve_send.idempotency_key, _now)
  on conflict do nothing;
  if not found then
    return query select true, null::text, null::interval, null::integer, null::interval;
    return;
  end if;

  for _cap in
    select c.scope, c.period, c.most, comms.cap_subject(c.scope, recipient) as subject
    from comms.send_cap c where c.channel = reserve_send.channel
    order by array_position(array['recipient', 'country', 'all'], c.scope), c.period
  loop
    insert into comms.send_count as k (channel, scope, period, subject, sent, ends_at)
    values (reserve_send.channel, _cap.scope, _cap.period, _cap.subject, 0, _now + _cap.period)
    on conflict (channel, scope, period, subject) do update
    set sent = case when k.ends_at > _now then k.sent else 0 end,
      ends_at = case when k.ends_at > _now then k.ends_at else excluded.ends_at end
    returning k.* into _count;
    if _count.sent >= _cap.most then
      delete from comms.send_reservation r where r.idempotency_key = reserve_send.idempotency_key;
      return query select false, _cap.scope, _cap.period, _cap.most, _count.ends_at - _now;
      return;
    end if;
  end loop;

  update comms.send_count k set sent = k.sent + 1
  from comms.send_cap c
  where c.channel = reserve_send.channel and k.channel = c.channel and k.scope = c.scope and k.period = c.period
    and k.subject = comms.cap_subject(c.scope, recipient);
  -- A few expired rows each time. The next call removes those that another session holds.
  delete from comms.send_reservation r where r.idempotency_key in (
    select old.idempotency_key from comms.send_reservation old where old.reserved_at < _now - interval '2 days'
    order by old.reserved_at limit 10 for update skip locked);
  delete from comms.send_count k where (k.channel, k.scope, k.period, k.subject) in (
    select old.channel, old.scope, old.period, old.subject from comms.send_count old where old.ends_at < _now
    order by old.ends_at limit 10 for update skip locked);
  return query select true, null::text, null::interval, null::integer, null::interval;
end
$$;

-- Returns what a cap counts together: the normalized recipient, the calling code of its number (+49 for
-- +4915112345678), or all messages. Codes have one, two or three digits, and none is a prefix of another.
create or replace function comms.cap_subject(scope text, recipient text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case scope when 'recipient' then lower(recipient)
    when 'country' then case
      when recipient ~ '^\+[17]' then left(recipient, 2)
      when recipient ~ '^\+(2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58])' then left(recipient, 3)
      else left(recipient, 4) end
    else '' end
$$;

-- Cancels a send of an e-mail that has not ended, and returns how it ended: cancelled, or its earlier end.
create or replace function comms.cancel_send_email_task(send_email_task_id bigint, reason text default null)
returns text language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.cancel_send('email', send_email_task_id, reason) $$;

-- Cancels a send that has not ended, and returns how it ended: cancelled, or its earlier end. Makes no further
-- attempts, and its supervisor does nothing more. A message that a provider has already accepted cannot be taken back;
-- a later report of the provider is recorded.
-- Internal; comms.cancel_send_email_task and comms.cancel_send_sms_task are for holdfast_client (sends of its
-- namespace) and holdfast_operator. Locks: the row of comms.send_task, then the ready row of the supervisor.
create or replace function comms.cancel_send(channel text, send_task_id bigint, reason text)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := queues.commit_to_disk();
  _name constant text := 'send_' || channel || '_task';
  _reason constant text := format('cancelled by %s', queues.actor()) || coalesce(': ' || left(reason, 2000), '');
  _id bigint;
  _facts comms.send_facts;
begin
  -- Whose it is never changes, so it is checked before a row of somebody else could be locked.
  if (select s.namespace = queues.namespace() or queues.has_role('operator') from comms.send_task s
    where s.send_task_id = cancel_send.send_task_id)
  then
    _id := (comms.lock_send(channel, jsonb_build_object(_name || '_id', send_task_id))).send_task_id;
  end if;
  if _id is null then
    raise exception using errcode = 'QF404',
      message = format('there is no %s %s', _name, coalesce(send_task_id::text, 'null')),
      hint = 'It may belong to another namespace.';
  end if;
  _facts := comms.read_facts(_id);
  if _facts.has_ended then
    return (select s.decision from comms.send_task_supervised s
      where s.send_task_id = _id and s.next_task_id is null);
  end if;
  insert into comms.send_task_supervised (send_task_id, run, supervised_at, decision, reason)
  values (_id, _facts.runs + 1, queues.clock(), 'cancelled', _reason);
  perform queues.nudge(_facts.next_task_id);
  perform queues.note_supervision('comms.send_' || channel, _id, null, decision => 'cancelled', reason => _reason);
  return 'cancelled';
end
$$;

-- Returns the send of a payload, locked until the end of the transaction, or null. The lock serializes the supervisor's
-- decisions and the handlers' records, so that neither misses the other.
-- Internal. Locks: the row of comms.send_task.
create or replace function comms.lock_send(channel text, payload jsonb)
returns comms.send_task
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select t from comms.send_task t
  where t.send_task_id = comms.send_id(lock_send.channel, payload) and t.channel = lock_send.channel
  for update
$$;

-- Returns the id of a send in the payload of its tasks, or null: the field send_email_task_id or send_sms_task_id.
create or replace function comms.send_id(channel text, payload jsonb)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when payload ->> f.name ~ '^[0-9]{1,18}$' then (payload ->> f.name)::bigint end
  from (select 'send_' || channel || '_task_id' as name) f
$$;

-- Returns the facts of a send. Supervisors and handlers read them here only.
create or replace function comms.read_facts(send_task_id bigint)
returns comms.send_facts
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.has_ended, exists (select from comms.send_task_succeeded s where s.send_task_id = read_facts.send_task_id),
    r.runs, r.waits, r.next_task_id, a.scheduled, a.first_scheduled_at, a.last_attempt_at,
    f.failures, f.first_failed_at, f.failed_for_good, f.last_error, f.retry_at,
    f.unknown > 0,
    -- Only if the same provider recognizes the key of every attempt whose outcome is unknown.
    case when f.unknown = f.repeatable and f.providers = 1 then f.repeatable_until end, f.provider
  from (
    select count(*)::integer as runs, coalesce(bool_or(s.next_task_id is null), false) as has_ended,
      (count(*) filter (where s.decision = 'wait' and s.run > s.last_attempt))::integer as waits,
      (array_agg(s.next_task_id order by s.run desc))[1] as next_task_id
    from (
      select d.run, d.decision, d.next_task_id,
        coalesce(max(d.run) filter (where d.decision = 'attempt') over (), 0) as last_attempt
      from comms.send_task_supervised d where d.send_task_id = read_facts.send_task_id) s) r
  cross join (
    select count(*)::integer as scheduled, (array_agg(s.scheduled_at order by s.attempt))[1] as first_scheduled_at,
      (array_agg(s.run_at order by s.attempt desc))[1] as last_attempt_at
    from comms.send_task_scheduled s where s.send_task_id = read_facts.send_task_id) a
  cross join (
    select count(*)::integer as failures, (array_agg(f.failed_at order by f.attempt))[1] as first_failed_at,
      (array_agg(f.permanent order by f.attempt desc))[1] as failed_for_good,
      (array_agg(f.message order by f.attempt desc))[1] as last_error,
      (array_agg(f.retry_at order by f.attempt desc))[1] as retry_at,
      count(*) filter (where f.outcome_unknown) as unknown,
      count(f.repeatable_until) filter (where f.outcome_unknown) as repeatable,
      min(f.repeatable_until) filter (where f.outcome_unknown) as repeatable_until,
      count(distinct f.detail ->> 'provider') filter (where f.outcome_unknown) as providers,
      min(f.detail ->> 'provider') filter (where f.outcome_unknown) as provider
    from comms.send_task_failed f where f.send_task_id = read_facts.send_task_id) f
$$;

-- Cancels a send of a text message that has not ended, and returns how it ended: cancelled, or its earlier end.
create or replace function comms.cancel_send_sms_task(send_sms_task_id bigint, reason text default null)
returns text language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.cancel_send('sms', send_sms_task_id, reason) $$;

-- Stores an e-mail in the caller's transaction and returns its id; comms.kickoff_send_email_task sends it. Every part
-- is limited, so that one message takes at most about a mebibyte to store and to load.
-- For holdfast_client and holdfast_process. Locks: nothing.
create or replace function comms.create_email_message(
  recipient text,
  subject text,
  text_body text default null,
  html_body text default null,
  sender text default null,
  reply_to text default null,
  headers jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most_bytes constant integer := 1048576;
  _most_headers constant integer := 50;
  _most_header_bytes constant integer := 32768;
  _id bigint;
begin
  perform comms.check_line('recipient', coalesce(recipient, ''), 320);
  perform comms.check_line('subject', coalesce(subject, ''), 2000);
  perform comms.check_line('sender', sender, 1000);
  perform comms.check_line('reply_to', reply_to, 1000);
  -- Only the provider can tell whether it exists.
  if recipient !~ '^[^\s@,;:<>()\[\]"\\]{1,64}@[^\s@,;:<>()\[\]"\\.]+(\.[^\s@,;:<>()\[\]"\\.]+)*$' then
    raise exception using errcode = 'QF400',
      message = format('recipient %s is not a single e-mail address', to_json(recipient)),
      hint = 'Write it as ada@example.org, without a name and without further addresses.';
  elsif char_length(subject) > 500 then
    raise exception using errcode = 'QF413',
      message = format('subject has %s characters; at most 500 are allowed', char_length(subject));
  elsif text_body is null and html_body is null then
    raise exception using errcode = 'QF400', message = 'an e-mail needs a text_body, an html_body or both';
  elsif coalesce(octet_length(text_body), 0) + coalesce(octet_length(html_body), 0) > _most_bytes then
    raise exception using errcode = 'QF413',
      message = format('text_body and html_body may have at most %s bytes together', _most_bytes);
  elsif jsonb_typeof(headers) is distinct from 'object' then
    raise exception using errcode = 'QF400', message = 'headers must be an object';
  elsif octet_length(headers::text) > _most_header_bytes then
    raise exception using errcode = 'QF413',
      message = format('headers may have at most %s bytes in total', _most_header_bytes);
  elsif (select count(*) from jsonb_object_keys(headers)) > _most_headers then
    raise exception using errcode = 'QF413', message = format('headers may have at most %s fields', _most_headers);
  end if;
  perform comms.check_header(h.name, h.value) from jsonb_each(headers) h(name, value);

  insert into comms.message (channel, created_at, created_by, namespace)
  values ('email', queues.clock(), session_user, queues.namespace())
  returning message_id into _id;
  insert into comms.message_content (
    message_id, channel, recipient, subject, text_body, html_body, sender, reply_to, headers)
  values (_id, 'email', recipient, subject, text_body, html_body, sender, reply_to, headers);
  return _id;
end
$$;

-- Refuses a value with more than one line. A line break in an address or a subject would start another header.
create or replace function comms.check_line(field text, value text, most integer)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The length is checked first, so that no long text is searched.
  if octet_length(value) not between 1 and most then
    raise exception using errcode = 'QF400', message = format('%s must be between 1 and %s bytes long', field, most);
  elsif value ~ '[\x01-\x1f\x7f]' then
    raise exception using errcode = 'QF400',
      message = format('%s must not contain line breaks or control characters', field);
  end if;
end
$$;

-- Refuses a header that could be misread, or that Holdfast sets itself.
create or replace function comms.check_header(name text, value jsonb)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if name !~ '^[A-Za-z][A-Za-z0-9-]{0,75}$' then
    raise exception using errcode = 'QF400',
      message = format('headers: %s is not the name of a header', to_json(left(name, 100)));
  elsif lower(name) in ('to', 'cc', 'bcc', 'from', 'sender', 'reply-to', 'subject', 'date', 'message-id',
    'mime-version', 'content-type', 'content-transfer-encoding', 'content-disposition', 'received', 'return-path',
    'dkim-signature')
  then
    raise exception using errcode = 'QF400', message = format('headers: %s cannot be set here', name);
  elsif jsonb_typeof(value) <> 'string' then
    raise exception using errcode = 'QF400', message = format('headers: %s must be a string', name);
  end if;
  perform comms.check_line('headers: ' || name, value #>> '{}', 900);
end
$$;

-- Stores a text message in the caller's transaction and returns its id; comms.kickoff_send_sms_task sends it.
-- For holdfast_client and holdfast_process. Locks: nothing.
create or replace function comms.create_sms_message(recipient text, text_body text, sender text default null)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most_characters constant integer := 1600;
  _id bigint;
begin
  if recipient is null or recipient !~ '^\+[1-9][0-9]{6,14}$' then
    raise exception using errcode = 'QF400', message = format(
        'recipient %s is not a number in E.164 form', coalesce(to_json(left(recipient, 100))::text, 'null')),
      hint = 'Write it as +4915112345678.';
  elsif text_body is null or text_body = '' then
    raise exception using errcode = 'QF400', message = 'a text message needs a text_body';
  elsif char_length(text_body) > _most_characters then
    raise exception using errcode = 'QF413',
      message = format('a text message may have at most %s characters', _most_characters);
  end if;
  perform comms.check_line('sender', sender, 100);

  insert into comms.message (channel, created_at, created_by, namespace)
  values ('sms', queues.clock(), session_user, queues.namespace())
  returning message_id into _id;
  insert into comms.message_content (message_id, channel, recipient, text_body, sender)
  values (_id, 'sms', recipient, text_body, sender);
  return _id;
end
$$;

-- Erases a recipient's messages, copies in the mailbox and cap counts, recording login and reason. Erases a limited
-- number of messages and returns how many; call it until it returns none. The facts of a send stay, without the address
-- and the text; a send that has not ended fails.
-- For holdfast_operator. Locks: the contents by message_id, then the rest.
create or replace function comms.erase_messages(recipient text, reason text, max_messages integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := queues.commit_to_disk();
  _messages bigint[];
  _copies integer;
begin
  if coalesce(recipient, '') = '' then
    raise exception using errcode = 'QF400', message = 'recipient must not be empty',
      hint = 'Give an e-mail address, or a number such as +4915112345678.';
  elsif coalesce(btrim(reason), '') = '' then
    raise exception using errcode = 'QF400', message = 'reason must not be empty',
      hint = 'It is recorded: give the reason, and do not repeat the address.';
  end if;
  perform queues.check_number('max_messages', max_messages, 1, 10000);
  _messages := array(
    select c.message_id from comms.message_content c where lower(c.recipient) = lower(erase_messages.recipient)
    order by c.message_id limit max_messages for update);
  delete from comms.mailbox_message m where m.mailbox_message_id in (
    select old.mailbox_message_id from comms.mailbox_message old
    where lower(old.recipient) = lower(erase_messages.recipient)
    order by old.mailbox_message_id limit max_messages for update);
  get diagnostics _copies = row_count;
  delete from comms.send_count k where k.scope = 'recipient' and k.subject = lower(erase_messages.recipient);
  return _copies + comms.remove_content(_messages, queues.actor(), left(reason, 2000), queues.clock());
end
$$;

-- Deletes the content of messages, records each erasure, and returns how many had content.
-- Internal: called by erase_messages and prune_messages, which have locked the content.
create or replace function comms.remove_content(message_ids bigint[], erased_by text, reason text, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _removed integer;
begin
  insert into comms.message_erased (message_id, erased_at, erased_by, reason)
  select m.message_id, now, erased_by, reason from unnest(message_ids) m(message_id)
  on conflict do nothing;
  get diagnostics _removed = row_count;
  delete from comms.message_content c where c.message_id = any (message_ids);
  return _removed;
end
$$;

-- Before-handler of an e-mail: returns the message for the provider, or why it must not be sent.
create or replace function comms.get_email_payload(payload jsonb)
returns jsonb language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select comms.get_send_payload('email', payload) $$;

-- Before-handler of a message: returns the message for the provider, or why it must not be sent. Called before every
-- call of the provider, because an attempt may wait in the queue until another one could deliver twice.
-- Internal; comms.get_email_payload and comms.get_sms_payload are for holdfast_worker. Locks: nothing.
create or replace function comms.get_send_payload(channel text, payload jsonb)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _name constant text := 'send_' || channel || '_task';
  _id constant bigint := comms.send_id(channel, payload);
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(payload, _facts.scheduled);
  _send comms.send_task;
  _content comms.message_content;
  _refusal text;
  _message jsonb;
begin
  select t.* into _send from comms.send_task t where t.send_task_id = _id and t.channel = get_send_payload.channel;
  select c.* into _content from comms.message_content c where c.message_id = _send.message_id;
  _refusal := case
    when _send.send_task_id is null
      then format('there is no %s %s', _name, coalesce(payload ->> (_name || '_id'), 'null'))
    when _facts.has_succeeded or _facts.has_ended then format('%s %s has ended', _name, _id)
    when _attempt is null
      then format('attempt %s of %s %s was never scheduled', coalesce(payload ->> 'attempt', 'null'), _name, _id)
    when comms.attempt_result(_id, _attempt) = 'failed'
      then format('attempt %s of %s %s has failed already', _attempt, _name, _id)
    when _send.when_unknown = 'stop' and _facts.may_be_delivered
      and queues.clock() > coalesce(_facts.repeatable_until, '-infinity')
      then format('%s %s may have been delivered, the provider recognised its idempotency key until %s, '
        'and when_unknown is stop', _name, _id, _facts.repeatable_until)
    when _content.message_id is null then format('message %s was erased', _send.message_id)
    end;
  if _refusal is not null then
    return jsonb_build_object('success', false, 'validation_failure_message', _refusal);
  end if;
  _message := jsonb_build_object(
    'to', _content.recipient, 'text', _content.text_body, 'sender', _content.sender, 'idempotency_key', _send.send_key);
  if channel = 'email' then
    _message := _message || jsonb_build_object('subject', _content.subject, 'html', _content.html_body,
      'reply_to', _content.reply_to, 'headers', _content.headers);
  end if;
  if _send.when_unknown = 'stop' and _facts.may_be_delivered then
    -- Another provider would not recognize the key.
    _message := _message || jsonb_build_object('only_provider', _facts.provider);
  end if;
  return jsonb_build_object('success', true, 'payload', _message);
end
$$;

-- Returns the attempt that the payload of a send names, else the last one; null if there is no such attempt.
create or replace function comms.attempt_of(payload jsonb, scheduled integer)
returns integer
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select a.attempt from (
    select case when payload ->> 'attempt' is null then scheduled
      when payload ->> 'attempt' ~ '^[0-9]{1,9}$' then (payload ->> 'attempt')::integer end as attempt) a
  where a.attempt between 1 and scheduled
$$;

-- Returns how an attempt of a send ended: succeeded, failed, or null if that is not recorded.
create or replace function comms.attempt_result(send_task_id bigint, attempt integer)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'failed' from comms.send_task_failed f where f.send_task_id = $1 and f.attempt = $2
  union all
  select 'succeeded' from comms.send_task_succeeded s where s.send_task_id = $1 and s.attempt = $2
$$;

-- Before-handler of a text message: returns the message for the provider, or why it must not be sent.
create or replace function comms.get_sms_payload(payload jsonb)
returns jsonb language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select comms.get_send_payload('sms', payload) $$;

-- Starts to send an e-mail in the caller's transaction, and returns the id of the send.
create or replace function comms.kickoff_send_email_task(
  message_id bigint,
  scheduled_at timestamptz default null,
  max_attempts integer default 10,
  when_unknown text default 'retry',
  retry_for interval default '2 days')
returns bigint language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.kickoff_send('email', message_id, scheduled_at, max_attempts, when_unknown, retry_for) $$;

-- Starts to send a message in the caller's transaction, and returns the id of the send. The message must exist in the
-- caller's namespace and not be erased. Writes the root of the process, and enqueues its supervisor for the time of the
-- send.
-- Internal; comms.kickoff_send_email_task and comms.kickoff_send_sms_task are for holdfast_client, with its own
-- messages, and holdfast_process. Locks: the content of the message, shared, so that it cannot be erased meanwhile.
create or replace function comms.kickoff_send(
  channel text, message_id bigint, scheduled_at timestamptz, max_attempts integer, when_unknown text,
  retry_for interval)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  _id bigint;
begin
  perform queues.check_number('max_attempts', max_attempts, 1, 20);
  if when_unknown is null or when_unknown not in ('retry', 'stop') then
    raise exception using errcode = 'QF400',
      message = format('when_unknown %s is neither retry nor stop', coalesce(to_json(when_unknown)::text, 'null'));
  elsif retry_for is null or retry_for not between interval '0' and interval '31 days' then
    raise exception using errcode = 'QF400', message = 'retry_for must be between 0 and 31 days';
  end if;
  if scheduled_at is not null then
    perform queues.parse_time('scheduled_at', to_jsonb(scheduled_at) #>> '{}', _now);
  end if;
  scheduled_at := coalesce(scheduled_at, _now);
  perform from comms.message m join comms.message_content c on c.message_id = m.message_id
  where m.message_id = kickoff_send.message_id and m.channel = kickoff_send.channel
    and (m.namespace = queues.namespace() or queues.has_role('worker')
      or queues.has_role('operator'))
  for key share of c;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no %s message %s', channel, coalesce(message_id::text, 'null')),
      hint = format('Create one with comms.create_%s_message. It may belong to another namespace.', channel);
  end if;
  insert into comms.send_task (
    channel, message_id, created_at, created_by, namespace, scheduled_at, max_attempts, retry_for,
    when_unknown, send_key)
  values (channel, message_id, _now, session_user, queues.namespace(), scheduled_at, max_attempts, retry_for,
    when_unknown, gen_random_uuid())
  returning send_task_id into _id;
  perform queues.note_supervision(
    'comms.send_' || channel, _id, comms.enqueue_supervisor(channel, _id, scheduled_at), scheduled_at);
  return _id;
end
$$;

-- Enqueues a run of the supervisor of a send, and returns the task. The first run has no number in its payload.
-- Internal: called with the rights of the owner, which may enqueue a db_function.
create or replace function comms.enqueue_supervisor(
  channel text, send_task_id bigint, run_at timestamptz, run integer default null)
returns uuid
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.enqueue(s.name, run_at => enqueue_supervisor.run_at, max_attempts => 25,
    payload => jsonb_strip_nulls(jsonb_build_object('task_type', 'db_function', 'db_function', s.name,
      'send_' || channel || '_task_id', send_task_id, 'run', run)))
  from (select 'comms.send_' || channel || '_supervisor' as name) s
$$;

-- Starts to send a text message in the caller's transaction, and returns the id of the send.
create or replace function comms.kickoff_send_sms_task(
  message_id bigint,
  scheduled_at timestamptz default null,
  max_attempts integer default 10,
  when_unknown text default 'retry',
  retry_for interval default '2 days')
returns bigint language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.kickoff_send('sms', message_id, scheduled_at, max_attempts, when_unknown, retry_for) $$;

-- Records a provider's report about a message that it has accepted: delivered, bounced or complained. Each kind is
-- recorded once per send, however often it is reported. Returns whether the provider's id belongs to a send. The caller
-- must have authenticated the report.
-- For holdfast_operator. Locks: nothing.
create or replace function comms.record_delivery(
  provider text, provider_message_id text, report text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _sends bigint[];
begin
  if report is null or report not in ('delivered', 'bounced', 'complained') then
    raise exception using errcode = 'QF400',
      message = format('report %s is unknown', coalesce(to_json(left(report, 100))::text, 'null')),
      hint = 'Allowed: delivered, bounced, complained.';
  end if;
  _sends := array(
    select s.send_task_id from comms.send_task_succeeded s
    where s.provider_message_id = record_delivery.provider_message_id and s.provider = record_delivery.provider);
  insert into comms.send_task_reported (send_task_id, report, reported_at, reason)
  select s.id, report, _now, left(reason, 500) from unnest(_sends) s(id)
  on conflict do nothing;
  return _sends <> '{}';
end
$$;

-- Error-handler of an e-mail: records the failure with the time of the next attempt, and nudges the supervisor.
create or replace function comms.record_email_failure(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_failure('email', payload) $$;

-- Error-handler of a message: records the failure with the time of the next attempt, and nudges the supervisor.
-- Repeating it changes nothing.
-- Internal; comms.record_email_failure and comms.record_sms_failure are for holdfast_worker. Locks: the row of
-- comms.send_task, then the ready row of the supervisor.
create or replace function comms.record_send_failure(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _name constant text := 'send_' || channel || '_task';
  _original constant jsonb := payload -> 'original_payload';
  _error constant jsonb := payload -> 'error';
  _now constant timestamptz := queues.clock();
  _id constant bigint := (comms.lock_send(channel, _original)).send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(_original, _facts.scheduled);
  _unknown constant boolean := coalesce(_error -> 'outcome_unknown' = 'true', false);
  _key_seconds numeric;
  _pause numeric;
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of %s %s',
      coalesce(_original ->> 'attempt', 'null'), _name, coalesce(_original ->> (_name || '_id'), 'null')));
  elsif comms.attempt_result(_id, _attempt) = 'succeeded' then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of %s %s is recorded as succeeded', _attempt, _name, _id));
  end if;
  if _unknown and jsonb_typeof(_error -> 'key_seconds') = 'number' then
    _key_seconds := least(366 * 86400, greatest(0, (_error ->> 'key_seconds')::numeric));
  end if;
  if jsonb_typeof(_error -> 'retry_after') = 'number' then
    _pause := least(31 * 86400, (_error ->> 'retry_after')::numeric);
  end if;
  insert into comms.send_task_failed (
    send_task_id, attempt, failed_at, kind, message, permanent, outcome_unknown, repeatable_until, retry_at, detail)
  values (_id, _attempt, _now, coalesce(_error ->> 'kind', 'unknown'), coalesce(_error ->> 'message', 'no message'),
    coalesce(_error -> 'permanent' = 'true', false), _unknown,
    -- The key of a send may have been used since its first attempt was scheduled.
    _facts.first_scheduled_at + interval '1 second' * _key_seconds,
    -- Stored, so that the random part of the back-off is chosen once.
    _now + greatest(queues.backoff(_attempt), interval '1 second' * _pause), _error)
  on conflict on constraint one_failure_per_attempt do nothing;
  if found then
    perform queues.nudge(_facts.next_task_id);
  end if;
  return jsonb_build_object('success', true);
end
$$;

-- Error-handler of a text message: records the failure with the time of the next attempt, and nudges the supervisor.
create or replace function comms.record_sms_failure(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_failure('sms', payload) $$;

-- Success-handler of an e-mail: records the success and nudges the supervisor.
create or replace function comms.record_email_success(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_success('email', payload) $$;

-- Success-handler of a message: records the success and nudges the supervisor. Repeating it changes nothing.
-- Internal; comms.record_email_success and comms.record_sms_success are for holdfast_worker. Locks: the row of
-- comms.send_task, then the ready row of the supervisor.
create or replace function comms.record_send_success(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _name constant text := 'send_' || channel || '_task';
  _original constant jsonb := payload -> 'original_payload';
  _id constant bigint := (comms.lock_send(channel, _original)).send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(_original, _facts.scheduled);
  _sent constant jsonb := payload -> 'worker_payload';
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of %s %s',
      coalesce(_original ->> 'attempt', 'null'), _name, coalesce(_original ->> (_name || '_id'), 'null')));
  elsif comms.attempt_result(_id, _attempt) = 'failed' then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of %s %s is recorded as failed', _attempt, _name, _id));
  end if;
  insert into comms.send_task_succeeded (send_task_id, attempt, succeeded_at, provider, provider_message_id, detail)
  values (_id, _attempt, queues.clock(), _sent ->> 'provider', _sent ->> 'message_id', _sent -> 'detail')
  on conflict on constraint one_success_per_send do nothing;
  perform queues.nudge(_facts.next_task_id);
  return jsonb_build_object('success', true);
end
$$;

-- Success-handler of a text message: records the success and nudges the supervisor.
create or replace function comms.record_sms_success(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_success('sms', payload) $$;

-- Enqueues the supervisors of sends of an e-mail that have none, at most max_processes of the payload.
create or replace function comms.repair_send_email(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.repair_send('email', payload) $$;

-- Enqueues the supervisors of sends that have none, at most max_processes of the payload. The worker itself enqueues
-- nothing: this function has its owner's rights. Repeating it changes nothing.
-- Internal; comms.repair_send_email and comms.repair_send_sms are for holdfast_worker. Locks: rows of comms.send_task,
-- without waiting.
create or replace function comms.repair_send(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _process constant text := 'comms.send_' || channel;
  _most constant integer := case when payload ->> 'max_processes' ~ '^[1-9][0-9]{0,3}$'
    then (payload ->> 'max_processes')::integer end;
  _id bigint;
  _exists boolean;
  _ended text;
  _now constant timestamptz := queues.clock();
  _repaired integer := 0;
begin
  if _most is null then
    return jsonb_build_object(
      'success', false, 'validation_failure_message', 'max_processes must be between 1 and 9999');
  end if;
  for _id in select o.process_id from queues.orphans(_process, _most) o(process_id) loop
    perform from comms.send_task t where t.send_task_id = _id and t.channel = repair_send.channel
    for update skip locked;
    _exists := found;
    continue when not _exists and exists (select from comms.send_task t where t.send_task_id = _id)
      or queues.is_supervised(_process, _id);
    select s.decision into _ended from comms.send_task_supervised s
    where s.send_task_id = _id and s.next_task_id is null;
    if found then
      perform queues.note_supervision(_process, _id, null, decision => _ended);
    elsif not _exists then
      perform queues.note_supervision(_process, _id, null, decision => 'gave_up', reason => 'the send was removed');
    else
      perform queues.note_supervision(_process, _id,
        comms.enqueue_supervisor(channel, _id, _now, (comms.read_facts(_id)).runs + 1), _now);
      _repaired := _repaired + 1;
    end if;
  end loop;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object('repaired', _repaired));
end
$$;

-- Enqueues the supervisors of sends of a text message that have none, at most max_processes of the payload.
create or replace function comms.repair_send_sms(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.repair_send('sms', payload) $$;

-- Returns everything that happened to a send of an e-mail, in order, and what comes next.
create or replace function comms.send_email_history(send_email_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid) language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$ select h.at, h.what, h.reason, h.task_id from comms.send_history('email', send_email_task_id) h $$;

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

-- Returns everything that happened to a send of a text message, in order, and what comes next.
create or replace function comms.send_sms_history(send_sms_task_id bigint)
returns table (at timestamptz, what text, reason text, task_id uuid) language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$ select h.at, h.what, h.reason, h.task_id from comms.send_history('sms', send_sms_task_id) h $$;

-- Takes an e-mail from its kickoff to its end: reads the facts, decides, writes.
create or replace function comms.send_email_supervisor(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.supervise_send('email', payload) $$;

-- Takes a message from its kickoff to its end: reads the facts, decides, writes. Schedules an attempt if none is
-- outstanding, and runs again until the send has ended.
-- Internal; comms.send_email_supervisor and comms.send_sms_supervisor are for holdfast_worker. Locks: the row of
-- comms.send_task.
create or replace function comms.supervise_send(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _usual_time constant interval := '20 seconds';
  _now constant timestamptz := queues.clock();
  _name constant text := 'send_' || channel || '_task';
  -- Read.
  _send constant comms.send_task := comms.lock_send(channel, payload);
  _id constant bigint := _send.send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _run constant integer := _facts.runs + 1;
  _decided record;
  _attempt_at timestamptz := _facts.last_attempt_at;
  _next_run_at timestamptz;
  _next_task_id uuid;
begin
  if _id is null then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('there is no %s %s', _name, coalesce(payload ->> (_name || '_id'), 'null')));
  elsif _facts.has_ended or payload ->> 'run' <> _run::text then
    return jsonb_build_object('success', true, 'payload', jsonb_build_object('decision', 'none',
      'reason', format('%s %s has ended, or another run has taken the place of this one', _name, _id)));
  end if;
  -- Think.
  _decided := comms.decide_send(_send, _facts, _now);

  -- Write.
  if _decided.decision = 'attempt' then
    _attempt_at := _decided.attempt_at;
    insert into comms.send_task_scheduled (send_task_id, attempt, scheduled_at, run_at, task_id)
    values (_id, _facts.scheduled + 1, _now, _attempt_at, queues.enqueue(
      'comms.send_' || channel, run_at => _attempt_at, max_attempts => 5, timeout => '1 minute',
      payload => jsonb_build_object(
        'task_type', channel, _name || '_id', _id, 'attempt', _facts.scheduled + 1,
        'before_handler', format('comms.get_%s_payload', channel),
        'success_handler', format('comms.record_%s_success', channel),
        'error_handler', format('comms.record_%s_failure', channel))));
  end if;
  if _decided.decision not in ('succeeded', 'failed', 'gave_up') then
    _next_run_at := case _decided.decision when 'sleep' then _send.scheduled_at
      else queues.next_check(
        case when _attempt_at > _now then _attempt_at + _usual_time / 2 end, _attempt_at + _usual_time) end;
    _next_task_id := comms.enqueue_supervisor(channel, _id, _next_run_at, _run + 1);
  end if;
  insert into comms.send_task_supervised (
    send_task_id, run, supervised_at, decision, reason, next_run_at, next_task_id)
  values (_id, _run, _now, _decided.decision, _decided.reason, _next_run_at, _next_task_id);
  perform queues.note_supervision(
    'comms.send_' || channel, _id, _next_task_id, _next_run_at, _decided.decision, _decided.reason);
  return jsonb_build_object('success', true, 'payload', jsonb_build_object(
    'run', _run, 'decision', _decided.decision, 'reason', _decided.reason, 'next_run_at', _next_run_at)
    || case _decided.decision when 'attempt' then jsonb_build_object('attempt_at', _attempt_at) else '{}' end);
end
$$;

-- Returns the supervisor's decision on a send, from the facts alone, and when an attempt is due. The decision is sleep,
-- attempt, wait, succeeded, failed or gave_up. The time also comes from the facts, so a repeated or nudged run decides
-- the same and never shortens a back-off.
create or replace function comms.decide_send(
  send comms.send_task, facts comms.send_facts, now timestamptz,
  out decision text, out reason text, out attempt_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select d.decision, d.reason || case when d.decision = 'failed' and facts.may_be_delivered
      then ' (the outcome of an attempt is unknown: it may have been delivered)' else '' end,
    case d.decision when 'attempt' then t.next_attempt_at end
  from (
    select greatest(now, facts.retry_at) as next_attempt_at, facts.first_failed_at + send.retry_for as retry_until,
      30 as max_waits,  -- for one attempt: about three days, because each wait is longer than the one before
      send.when_unknown = 'stop' and facts.may_be_delivered as must_not_repeat) t
  cross join lateral (values
    (1, facts.has_succeeded, 'succeeded', format('attempt %s has succeeded', facts.scheduled)),
    (2, facts.scheduled > facts.failures and facts.waits >= t.max_waits, 'gave_up',
      format('attempt %s has had no outcome in %s runs of the supervisor', facts.scheduled, facts.waits)),
    (3, facts.scheduled > facts.failures, 'wait', format('attempt %s has no outcome yet', facts.scheduled)),
    (4, facts.failed_for_good, 'failed',
      format('attempt %s has failed for good: %s', facts.failures, facts.last_error)),
    (5, facts.failures >= send.max_attempts, 'failed', format('%s of %s attempts have failed, the last with: %s',
      facts.failures, send.max_attempts, facts.last_error)),
    (6, t.must_not_repeat and facts.repeatable_until is null, 'failed',
      format('another attempt could deliver it twice, and when_unknown is stop: %s', facts.last_error)),
    (7, t.must_not_repeat and t.next_attempt_at > facts.repeatable_until, 'failed',
      format('the provider recognises the idempotency key until %s, the next attempt would be at %s and could deliver '
        'it twice, and when_unknown is stop: %s', facts.repeatable_until, t.next_attempt_at, facts.last_error)),
    (8, t.next_attempt_at > t.retry_until, 'failed',
      format('the next attempt would be at %s, and retry_for ends at %s: %s',
        t.next_attempt_at, t.retry_until, facts.last_error)),
    (9, send.scheduled_at > now, 'sleep', format('it is to be sent at %s', send.scheduled_at)),
    (10, true, 'attempt', format('attempt %s of %s', facts.scheduled + 1, send.max_attempts))
  ) d(n, holds, decision, reason)
  where d.holds order by d.n limit 1
$$;

-- Takes a text message from its kickoff to its end: reads the facts, decides, writes.
create or replace function comms.send_sms_supervisor(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.supervise_send('sms', payload) $$;

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

-- Stores a message in the mailbox instead of sending it, once per key, and returns its id there. Deletes the oldest
-- messages.
-- For holdfast_worker. Locks: the key.
create or replace function comms.keep_message(
  channel text,
  recipient text,
  idempotency_key text,
  sender text default null,
  subject text default null,
  text_body text default null,
  html_body text default null,
  reply_to text default null,
  headers jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _id bigint;
begin
  if channel is null or channel not in ('email', 'sms') then
    raise exception using errcode = 'QF400', message = format('channel %s is unknown', to_json(channel)),
      hint = 'Allowed: email, sms.';
  elsif recipient is null or idempotency_key is null then
    raise exception using errcode = 'QF400', message = 'recipient and idempotency_key must not be null';
  end if;
  insert into comms.mailbox_message
    (channel, idempotency_key, kept_at, recipient, sender, subject, text_body, html_body, reply_to, headers)
  values (keep_message.channel, keep_message.idempotency_key, queues.clock(), keep_message.recipient,
    keep_message.sender, keep_message.subject, keep_message.text_body, keep_message.html_body, keep_message.reply_to,
    coalesce(keep_message.headers, '{}'))
  on conflict (idempotency_key) do nothing
  returning mailbox_message_id into _id;
  if _id is null then
    return (select m.mailbox_message_id from comms.mailbox_message m
      where m.idempotency_key = keep_message.idempotency_key);
  end if;

  delete from comms.mailbox_message m where m.mailbox_message_id in (
    select old.mailbox_message_id from comms.mailbox_message old
    where old.mailbox_message_id <= (
      select newer.mailbox_message_id from comms.mailbox_message newer order by newer.mailbox_message_id desc
      offset (select s.value from queues.setting s where s.name = 'mailbox_messages') limit 1)
    order by old.mailbox_message_id limit 100 for update skip locked);
  return _id;
end
$$;

-- Trigger function that protects the content of messages: no updates, and deletes only after a recorded erasure.
create or replace function comms.protect_content()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and exists (select from comms.message_erased e where e.message_id = old.message_id) then
    return old;
  end if;
  raise exception using errcode = 'QF412',
    message = format('%I.%I is kept as it is: %s is refused', tg_table_schema, tg_table_name, lower(tg_op)),
    hint = 'comms.erase_messages removes the content of messages, and records it.';
end
$$;

do $install$
begin
  if not exists (
    select from pg_catalog.pg_trigger t
    where t.tgrelid = 'comms.message_content'::pg_catalog.regclass and t.tgname = 'kept_as_it_is')
  then
    create trigger kept_as_it_is before update or truncate on comms.message_content
      for each statement execute function comms.protect_content();
    create trigger erased_on_record before delete on comms.message_content
      for each row execute function comms.protect_content();
    -- Also where triggers are disabled, as in a session that restores a dump or applies a replica's changes.
    alter table comms.message_content
      enable always trigger kept_as_it_is, enable always trigger erased_on_record;
  end if;
end
$install$;

-- Removes the content of messages that the policy for messages no longer keeps. That is, all their sends ended longer
-- ago, or they were never sent. Examines a limited number, the oldest first, after the given one, and returns where to
-- continue: null at the end.
-- Internal: called by prune. Locks: contents and copies in the mailbox, without waiting.
create or replace function queues.prune_messages(
  max_messages integer, past uuid, dry_run boolean, now timestamptz, out pruned integer, out examined integer,
  out next uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _cutoff constant timestamptz := now - (select r.keep from queues.retention r where r.status = 'messages');
  -- The number of a message in place of the id of a task.
  _past constant bigint := coalesce(('x' || right(replace(past::text, '-', ''), 16))::bit(64)::bigint, 0);
  _looked bigint[];
  _old bigint[];
  _copies bigint[];
begin
  pruned := 0;
  examined := 0;
  if _cutoff is null then
    return;
  end if;
  _looked := array(
    select c.message_id from comms.message_content c where c.message_id > _past
    order by c.message_id limit max_messages);
  examined := cardinality(_looked);
  _old := array(
    select m.message_id from comms.message m where m.message_id = any (_looked) and m.created_at < _cutoff
    order by m.message_id);
  if not coalesce(dry_run, false) then
    _old := array(
      select c.message_id from comms.message_content c where c.message_id = any (_old)
      order by c.message_id for update skip locked);
  end if;
  -- A separate statement, so that it sees a send that was started before the lock was granted.
  _old := array(
    select m.message_id from unnest(_old) m(message_id)
    where not exists (
      select from comms.send_task t where t.message_id = m.message_id and not exists (
        select from comms.send_task_supervised s
        where s.send_task_id = t.send_task_id and s.next_task_id is null and s.supervised_at < _cutoff)));
  _copies := array(
    select b.mailbox_message_id from comms.mailbox_message b where b.kept_at < _cutoff
    order by b.mailbox_message_id limit max_messages for update skip locked);
  if not coalesce(dry_run, false) then
    perform comms.remove_content(_old, 'retention', 'kept no longer', now);
    delete from comms.mailbox_message b where b.mailbox_message_id = any (_copies);
    delete from comms.send_count k where (k.channel, k.scope, k.period, k.subject) in (
      select old.channel, old.scope, old.period, old.subject from comms.send_count old where old.ends_at < now
      order by old.ends_at limit max_messages for update skip locked);
  end if;
  pruned := cardinality(_old) + cardinality(_copies);
  if examined = max_messages
    and (select m.created_at from comms.message m where m.message_id = _looked[examined]) < _cutoff
  then
    next := lpad(to_hex(_looked[examined]), 32, '0')::uuid;
  end if;
end
$$;

-- One fact each, for one channel. A send of the other channel has none.

-- Returns whether the provider has accepted the message.
create or replace function comms.has_send_email_task_succeeded(send_email_task_id bigint)
returns boolean language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*) > 0 from comms.send_email_task_succeeded f where f.send_email_task_id = $1 $$;

-- Returns how many attempts have failed.
create or replace function comms.count_send_email_task_failures(send_email_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_email_task_failed f where f.send_email_task_id = $1 $$;

-- Returns how many attempts were scheduled.
create or replace function comms.count_send_email_task_scheduled(send_email_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_email_task_scheduled f where f.send_email_task_id = $1 $$;

-- Returns whether the provider has accepted the message.
create or replace function comms.has_send_sms_task_succeeded(send_sms_task_id bigint)
returns boolean language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*) > 0 from comms.send_sms_task_succeeded f where f.send_sms_task_id = $1 $$;

-- Returns how many attempts have failed.
create or replace function comms.count_send_sms_task_failures(send_sms_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_sms_task_failed f where f.send_sms_task_id = $1 $$;

-- Returns how many attempts were scheduled.
create or replace function comms.count_send_sms_task_scheduled(send_sms_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_sms_task_scheduled f where f.send_sms_task_id = $1 $$;
