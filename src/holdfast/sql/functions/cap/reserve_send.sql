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

comment on function comms.reserve_send(text, text, text) is
  'Counts one message before it is sent, or returns which cap is reached and for how long, without counting.';
