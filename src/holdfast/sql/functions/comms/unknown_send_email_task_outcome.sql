-- Returns whether a failed attempt may have been delivered, and until when another cannot deliver twice. The time is
-- null if another attempt could deliver twice at once. Also returns the provider, null if it is not known.
-- Internal: a fact for the supervisor.
create or replace function comms.unknown_send_email_task_outcome(
  send_email_task_id bigint, out may_be_delivered boolean, out repeatable_until timestamptz, out provider text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*) > 0, case when count(*) = count(f.repeatable_until) and count(distinct f.detail ->> 'provider') = 1 then min(f.repeatable_until) end,
    min(f.detail ->> 'provider')
  from comms.send_email_task_failed f
  where f.send_email_task_id = unknown_send_email_task_outcome.send_email_task_id and f.outcome_unknown
$$;

comment on function comms.unknown_send_email_task_outcome(bigint) is
  'Returns whether a failed attempt may have been delivered, and until when another cannot deliver twice.';
