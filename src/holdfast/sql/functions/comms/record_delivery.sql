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

comment on function comms.record_delivery(text, text, text, text) is
  'Records a provider''s report about a message that it has accepted: delivered, bounced or complained.';
