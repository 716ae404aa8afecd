-- Returns the status of a task, in the one word that users see. No pinned path, so that a view can read it.
create or replace function queues.status_of(
  outcome_status text, claimed_at timestamptz, started_at timestamptz, attempt integer, run_at timestamptz,
  now timestamptz, waits boolean default false)
returns text
language sql immutable parallel safe
as $$
  select case
    when outcome_status is not null then outcome_status
    when claimed_at is not null then case when started_at is null then 'claimed' else 'running' end
    when attempt > 0 then 'retrying'
    when run_at > now and waits then 'suspended'
    when run_at > now then 'scheduled'
    else 'pending' end
$$;

comment on function queues.status_of(text, timestamptz, timestamptz, integer, timestamptz, timestamptz, boolean) is
  'Returns the status of a task, in the one word that users see.';
