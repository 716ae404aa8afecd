-- For whom a transaction acts, and acts that do not concern the state of a task.

-- Unlogged: no row outlives its transaction.
create unlogged table internal.call (
  transaction_id xid8 constraint call_pkey primary key,
  namespace text collate "C" not null,
  actor text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table internal.call is
  'The transaction that calls a function of a process: for which namespace, and who has it called.';

create table queues.access_act (
  access_act_id bigint generated always as identity constraint access_act_pkey primary key,
  act text not null constraint known_access_act check (act in (
    'token_created', 'token_revoked', 'logged_in', 'logged_out', 'login_refused', 'revealed',
    'namespace_joined', 'namespace_left')),
  occurred_at timestamptz not null,
  actor text not null,
  token_id bigint,
  task_id uuid,
  mailbox_message_id bigint,
  address text,
  reason text
);
create index access_acts_by_time on queues.access_act (occurred_at, access_act_id);
create index access_acts_on_task on queues.access_act (task_id, access_act_id) where task_id is not null;
comment on table queues.access_act is
  'Created and revoked tokens, logins, and revealed values: who, when, why. Append-only.';
