-- Tasks (by task_id) and processes (by wait_key) whose end a client waits for. Unlogged: after a crash, clients ask
-- again, as they do occasionally anyway.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is
  'Tasks and processes whose end a client waits for. Only for these is a notification sent.';
