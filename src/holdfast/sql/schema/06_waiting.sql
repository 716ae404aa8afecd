-- Whose end somebody waits for: tasks by their task_id, processes by their wait_key. Unlogged: after a crash those who wait ask again, as they do anyway from time to time.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is 'Tasks and processes whose end somebody waits for: only those are told of.';
