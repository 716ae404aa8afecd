-- What becomes of a task whose lease ends, for the function that all ends of leases share.
create type queues.lease_end as (
  task_id uuid,
  n integer,
  status text,
  used integer,
  run_at timestamptz,
  started_at timestamptz,
  result jsonb,
  reason text,
  cause "char",
  cause_id uuid,
  act text,
  act_data jsonb,
  error_kind text,
  error_message text,
  error jsonb,
  recovered boolean,
  wakes boolean
);
