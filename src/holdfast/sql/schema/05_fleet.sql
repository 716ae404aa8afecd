create table queues.worker (
  worker_id text collate "C" constraint worker_pkey primary key,
  hostname text not null,
  pid integer,
  version text,
  queues text[] not null,
  type_prefixes text[] not null,
  types text[] not null default '{}',
  concurrency integer not null,
  in_flight integer not null,
  running integer not null,
  idle boolean not null,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null,
  listed_at timestamptz,
  timeout interval not null,
  heartbeat interval not null,
  memory_bytes bigint constraint memory_is_a_size check (memory_bytes >= 0),
  finished bigint constraint finished_is_a_count check (finished >= 0),
  per_second real constraint per_second_is_a_rate check (per_second >= 0 and per_second < 'infinity'),
  troubles jsonb
) with (fillfactor = 50);
create index worker_to_wake on queues.worker (worker_id) where idle;
comment on table queues.worker is 'The running workers. One row per process start, one update per heartbeat.';
comment on column queues.worker.types is 'The types that it has declared: it has handlers for them.';
comment on column queues.worker.in_flight is
  'Leases that its last heartbeat renewed: running tasks, and tasks claimed in advance.';
comment on column queues.worker.heartbeat is
  'How often it sends a heartbeat. After two missing heartbeats, it counts as late.';
comment on column queues.worker.listed_at is
  'When it last listed all of its tasks that have begun. One not begun when its lease ended keeps its attempt.';
comment on column queues.worker.memory_bytes is 'The resident memory of its process, as it last reported.';
comment on column queues.worker.finished is 'How many attempts have ended since it started.';
comment on column queues.worker.per_second is 'How many of them ended per second, over the last five minutes.';
comment on column queues.worker.troubles is
  'Up to 20 of the runs that its last heartbeat named because something delays them: task_id, token, trouble.';
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
create index losses_in_time on queues.loss (lost_at);
comment on table queues.loss is
  'Workers that were lost without retiring, and how many of their tasks were recovered or ended.';

-- At most one row, which makes two leaders impossible.
create table queues.leadership (
  only_one boolean constraint one_leader primary key default true constraint only_true check (only_one),
  worker_id text not null,
  term bigint not null,
  leader_since timestamptz not null,
  leader_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.leadership is 'The worker that is the leader, and until when.';

-- At most one row, which every sweep updates. Unlogged: after a crash, the next worker that looks sweeps.
create unlogged table queues.last_sweep (
  only_one boolean constraint one_last_sweep primary key default true constraint last_sweep_is_one_row check (only_one),
  swept_at timestamptz not null,
  reachable_since timestamptz not null default '-infinity',
  next_expiry timestamptz,
  next_page bigint not null
) with (fillfactor = 50);
insert into queues.last_sweep (swept_at, next_page) values ('-infinity', 0);
comment on table queues.last_sweep is 'When leases were last swept, so that workers notice when none does.';
comment on column queues.last_sweep.reachable_since is
  'When the first sweep was after there had been none for five seconds: workers had not reached the database.';
comment on column queues.last_sweep.next_expiry is
  'No lease that the sweep saw ends earlier, because a lease is only prolonged; null if it saw none.';
comment on column queues.last_sweep.next_page is 'Where the next sweep begins; not 0 only if the table is very large.';

create table queues.installation (
  version integer constraint installation_pkey primary key,
  installed_at timestamptz not null,
  release text not null,
  digest text not null
);
comment on table queues.installation is 'The versions of the schema that were installed in this database.';
comment on column queues.installation.digest is
  'SHA-256 of the SQL that was last applied. A release with another digest must be applied.';

-- The wake-up throttle. Unlogged: after a crash, enqueueing wakes workers again.
create unlogged table queues.wakeup_throttle (
  queue text collate "C" constraint door_pkey primary key,
  worker_id text not null,
  kept_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.wakeup_throttle is
  'Queues whose wake-ups one worker throttles: until kept_until, enqueueing sends none.';
