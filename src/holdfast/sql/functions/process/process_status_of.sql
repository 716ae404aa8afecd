-- Where a process stands: how it ended, or scheduled before it has begun, or running.
create or replace function queues.process_status_of(decision text, ended_at timestamptz)
returns text
language sql immutable
as $$
  select case when ended_at is not null then decision when decision is null or decision = 'sleep' then 'scheduled' else 'running' end
$$;

comment on function queues.process_status_of(text, timestamptz) is 'Where a process stands: how it ended, or scheduled before it has begun, or running.';
