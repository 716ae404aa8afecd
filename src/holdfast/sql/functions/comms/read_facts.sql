-- Returns the facts of a send. Supervisors and handlers read them here only.
-- Internal.
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

comment on function comms.read_facts(bigint) is 'Returns the facts of a send.';

-- One fact each, for one channel. A send of the other channel has none.

create or replace function comms.has_send_email_task_succeeded(send_email_task_id bigint)
returns boolean language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*) > 0 from comms.send_email_task_succeeded f where f.send_email_task_id = $1 $$;
comment on function comms.has_send_email_task_succeeded(bigint) is
  'Returns whether the provider has accepted the message.';

create or replace function comms.count_send_email_task_failures(send_email_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_email_task_failed f where f.send_email_task_id = $1 $$;
comment on function comms.count_send_email_task_failures(bigint) is 'Returns how many attempts have failed.';

create or replace function comms.count_send_email_task_scheduled(send_email_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_email_task_scheduled f where f.send_email_task_id = $1 $$;
comment on function comms.count_send_email_task_scheduled(bigint) is 'Returns how many attempts were scheduled.';

create or replace function comms.has_send_sms_task_succeeded(send_sms_task_id bigint)
returns boolean language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*) > 0 from comms.send_sms_task_succeeded f where f.send_sms_task_id = $1 $$;
comment on function comms.has_send_sms_task_succeeded(bigint) is
  'Returns whether the provider has accepted the message.';

create or replace function comms.count_send_sms_task_failures(send_sms_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_sms_task_failed f where f.send_sms_task_id = $1 $$;
comment on function comms.count_send_sms_task_failures(bigint) is 'Returns how many attempts have failed.';

create or replace function comms.count_send_sms_task_scheduled(send_sms_task_id bigint)
returns integer language sql stable set search_path = pg_catalog, pg_temp
as $$ select count(*)::integer from comms.send_sms_task_scheduled f where f.send_sms_task_id = $1 $$;
comment on function comms.count_send_sms_task_scheduled(bigint) is 'Returns how many attempts were scheduled.';
