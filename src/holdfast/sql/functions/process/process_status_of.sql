-- Returns the status of a process: how it ended, else scheduled before it has started, else running.
-- Internal.
create or replace function queues.process_status_of(decision text, ended_at timestamptz)
returns text
language sql immutable
as $$
  select case when ended_at is not null then decision
    when decision is null or decision = 'sleep' then 'scheduled' else 'running' end
$$;

comment on function queues.process_status_of(text, timestamptz) is
  'Returns the status of a process: how it ended, else scheduled before it has started, else running.';
