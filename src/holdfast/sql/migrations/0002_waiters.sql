-- Whose end somebody waits for. Unlogged: after a crash those who wait ask again, as they do anyway from time to time.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is 'Tasks whose end somebody waits for: finish tells them, and nobody else.';

update queues.setting
set description = 'most elements in one call of enqueue_many, heartbeat, finish or release' where name = 'max_batch';
