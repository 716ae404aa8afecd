create table queues.worker (
  worker_id text collate "C" constraint worker_pkey primary key,
  hostname text not null,
  pid integer,
  version text,
  queues text[] not null,
  type_prefixes text[] not null,
  concurrency integer not null,
  in_flight integer not null,
  running integer not null,
  idle boolean not null,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null,
  timeout interval not null,
  heartbeat interval not null
) with (fillfactor = 50);
create index worker_to_wake on queues.worker (worker_id) where idle;
comment on table queues.worker is 'The processes that run tasks. One row per process start, one update per beat.';
comment on column queues.worker.in_flight is 'Leases that its last heartbeat kept: tasks that run, and tasks claimed in advance.';
comment on column queues.worker.heartbeat is 'How often it sends a heartbeat: after two that did not come, it counts as late.';
comment on column queues.worker.timeout is 'How long it may be silent before it counts as dead.';

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

-- One row at most, whatever happens: that is what makes two leaders impossible.
create table queues.leadership (
  only_one boolean constraint one_leader primary key default true constraint only_true check (only_one),
  worker_id text not null,
  term bigint not null,
  leader_since timestamptz not null,
  leader_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.leadership is 'Who sweeps the floor, and until when.';

create table queues.installation (
  version integer constraint installation_pkey primary key,
  installed_at timestamptz not null,
  release text not null,
  digest text not null
);
comment on table queues.installation is 'The versions of the schema that this database has had.';
comment on column queues.installation.digest is 'SHA-256 of the SQL that was applied last: another one is to be replayed.';

-- Which worker finds what comes and tells the others. Unlogged: after a crash those who enqueue wake workers again.
create unlogged table queues.door (
  queue text collate "C" constraint door_pkey primary key,
  worker_id text not null,
  kept_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.door is 'Queues for which one worker looks for all: those who enqueue wake nobody until then.';
