-- How long a worker may be silent is its own affair, because how often it beats is.
alter table queues.worker add column timeout interval;
update queues.worker
set timeout = (select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds');
alter table queues.worker alter column timeout set not null;
comment on column queues.worker.timeout is 'How long it may be silent before it counts as dead.';
update queues.setting set description = 'how long a worker that does not say so may be silent before it counts as dead'
where name = 'worker_timeout_seconds';

create table queues.loss (
  worker_id text collate "C" not null,
  hostname text not null,
  pid integer,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null,
  lost_at timestamptz not null,
  recovered integer not null,
  dead integer not null,
  constraint one_loss_per_silence primary key (worker_id, last_heartbeat)
);
comment on table queues.loss is 'Workers that fell silent without retiring, and how many of their tasks went back or ended.';
