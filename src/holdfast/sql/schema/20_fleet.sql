-- What exists beside tasks: workers and their leader, the clients that wait, retention, schedules, the figures of
-- charts, and the number of a shard.
-- Explained in docs/design/recovery.md.

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
comment on column queues.installation.digest is 'SHA-256 of the SQL that was last applied.';

create table queues.unit (
  unit text collate "C" constraint unit_pkey primary key,
  installed boolean not null,
  changed_at timestamptz not null,
  digest text not null
);
comment on table queues.unit is
  'The units of installation: core and those that a database may do without. Only holdfast migrate writes it.';
comment on column queues.unit.installed is 'If not, core has nothing of it but functions and views that find nothing.';
comment on column queues.unit.digest is
  'A digest of its SQL, or of what takes its place. If it is unchanged, its functions and views are not replaced.';

-- The wake-up throttle. Unlogged: after a crash, enqueueing wakes workers again.
create unlogged table queues.wakeup_throttle (
  queue text collate "C" constraint door_pkey primary key,
  worker_id text not null,
  kept_until timestamptz not null
) with (fillfactor = 50);
comment on table queues.wakeup_throttle is
  'Queues whose wake-ups one worker throttles: until kept_until, enqueueing sends none.';

-- Tasks (by task_id) and processes (by wait_key) whose end a client waits for. Unlogged: after a crash, clients ask
-- again, as they do occasionally anyway.
create unlogged table queues.waiter (
  task_id uuid constraint waiter_pkey primary key,
  until timestamptz not null
);
comment on table queues.waiter is
  'Tasks and processes whose end a client waits for. Only for these is a notification sent.';

create table queues.retention (
  status text collate "C" not null constraint known_to_retention check (
    status in ('succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted', 'history', 'messages', 'steps')),
  type_prefix text collate "C" not null,
  keep interval constraint kept_for_a_while check (keep >= interval '1 minute'),
  changed_at timestamptz,
  changed_by text,
  constraint one_policy_per_prefix primary key (status, type_prefix)
);
comment on table queues.retention is
  'How long data is kept. If several prefixes match a type, the longest one applies.';
comment on column queues.retention.keep is 'Counted from the end or the deletion; null means forever.';
insert into queues.retention (status, type_prefix, keep) values
  ('succeeded', '', '7 days'),
  ('cancelled', '', '30 days'),
  ('failed', '', '90 days'),
  ('dead_letter', '', '90 days'),
  ('deleted', '', '30 days'),
  ('history', '', '90 days'),
  ('steps', '', '7 days');

-- Without it, each pass would walk over everything that the pass before has kept.
create table queues.retention_mark (
  status text collate "C" constraint retention_mark_pkey primary key,
  past uuid not null,
  full_pass_at timestamptz not null
) with (fillfactor = 50);
comment on table queues.retention_mark is
  'Where the next pass of retention over tasks of a status begins. One row per status.';
comment on column queues.retention_mark.past is
  'The oldest task that is not too young. Those before it were kept: because of another policy, or they had not ended.';
comment on column queues.retention_mark.full_pass_at is
  'When a pass last began at the oldest task of all; once a day, it looks again at those that were kept.';
insert into queues.retention_mark (status, past, full_pass_at)
select r.status, '00000000-0000-0000-0000-000000000000', '-infinity'
from queues.retention r where r.status <> 'history';

-- Schedules enqueue tasks at given times. A worker computes the times; the version of the row decides which result is
-- valid.
create table queues.schedule (
  name text collate "C" not null,
  namespace text collate "C" not null,
  version bigint not null,
  next_at timestamptz,
  decided_at timestamptz not null,
  plan_after timestamptz not null,
  last_nominal_at timestamptz,
  last_task_id uuid,
  cron text,
  every interval,
  anchor timestamptz,
  tz text,
  catch_up text not null constraint known_catch_up check (catch_up in ('skip', 'latest', 'all')),
  catch_up_limit integer not null,
  jitter interval not null,
  overlap text not null constraint known_overlap check (overlap in ('allow', 'skip')),
  task jsonb not null,
  for_process boolean not null,
  declared_by text,
  created_by text not null,
  created_at timestamptz not null,
  changed_at timestamptz not null,
  orphaned_at timestamptz,
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  problem text,
  -- The namespace comes last, so that an operator finds a name in all namespaces with one index range.
  constraint one_schedule_per_name_and_namespace primary key (name, namespace),
  constraint cron_or_every check ((cron is null) <> (every is null)),
  constraint cron_has_a_zone check ((cron is null) = (tz is null)),
  constraint every_has_an_anchor check ((every is null) = (anchor is null))
) with (fillfactor = 80);
-- By namespace, so that a look costs no more where one namespace has many.
create index schedule_to_fire on queues.schedule (namespace, next_at) where paused_at is null and orphaned_at is null;
create index schedule_decided on queues.schedule (namespace, decided_at);
comment on table queues.schedule is 'Recurring schedules: what is enqueued, and when next.';
comment on column queues.schedule.namespace is 'The owner of the schedule and of its tasks.';
comment on column queues.schedule.version is 'Grows with every change: a decision on an older version changes nothing.';
comment on column queues.schedule.next_at is
  'The next nominal time; null until a leader has computed it, infinity if there is none.';
comment on column queues.schedule.decided_at is
  'When next_at was last decided on. Later than the clock only if the clock was set back.';
comment on column queues.schedule.task is 'What to enqueue: an element of enqueue_many.';
comment on column queues.schedule.for_process is
  'Whether its creator may enqueue tasks that act with the rights of the database.';
comment on column queues.schedule.declared_by is 'The application that declares it; null if it was added by hand.';

-- One row per decided nominal time. The key prevents two tasks for one time.
create table queues.schedule_firing (
  schedule text collate "C" not null,
  namespace text collate "C" not null,
  nominal_at timestamptz not null,
  decided_at timestamptz not null,
  decision text not null constraint known_decision check (decision in ('fired', 'overlapped', 'missed', 'forced')),
  task_id uuid,
  constraint one_firing_per_nominal_time primary key (schedule, namespace, nominal_at),
  constraint task_if_enqueued check ((task_id is not null) = (decision in ('fired', 'forced')))
);
create index firings_to_prune on queues.schedule_firing (decided_at);
comment on table queues.schedule_firing is
  'The decision on each nominal time of a schedule. Append-only, pruned by age.';

create table queues.schedule_act (
  act_id bigint generated always as identity constraint schedule_act_pkey primary key,
  schedule text collate "C" not null,
  namespace text collate "C" not null,
  act text not null constraint known_schedule_act check (act in (
    'added', 'changed', 'removed', 'paused', 'resumed', 'orphaned', 'forced')),
  occurred_at timestamptz not null,
  actor text not null,
  reason text
);
create index acts_on_schedule on queues.schedule_act (schedule, namespace, act_id);
comment on table queues.schedule_act is 'Acts on schedules, by whom and why. Append-only.';

insert into queues.setting (name, value, description) values
  ('max_schedules', 1000, 'maximum number of schedules of one namespace, including paused and orphaned ones');

-- The sizes and transaction ids of the leader's samples tell the growth of the tables and the age of a snapshot without
-- a time. The counters are the server's own statistics, so that charts add no cost to tasks.
create table queues.sample (
  taken_at timestamptz constraint sample_pkey primary key,
  transaction_id xid8 not null,
  bytes bigint not null,
  enqueued_total bigint not null,
  finished_total bigint not null,
  errors_total bigint not null,
  due bigint,
  scheduled bigint,
  running bigint,
  delay_p50 double precision,
  delay_p99 double precision,
  counting interval
);
comment on table queues.sample is
  'Samples for health and for the charts: every minute by the leader, every ten seconds by an HTTP server.';
comment on column queues.sample.counting is
  'How long it took to count the tasks, or null if they were not counted. The next count waits fifty times as long.';

-- What workers ran in five minutes, for each type of a queue, for each queue (type ''), and for everything (queue and
-- type ''). Nothing is counted when a task ends, so that charts add no cost to tasks.
create table queues.activity (
  at timestamptz not null,
  queue text collate "C" not null,
  type text collate "C" not null,
  succeeded bigint not null default 0,
  failed bigint not null default 0,
  cancelled bigint not null default 0,
  retrying bigint not null default 0,
  run_seconds double precision not null default 0,
  delay_seconds double precision not null default 0,
  due bigint,
  running bigint,
  constraint activity_pkey primary key (queue, type, at)
) with (fillfactor = 70);
create index activity_in_time on queues.activity (at);
comment on table queues.activity is
  'How many attempts ended how in five minutes, for each type of a queue, each queue, and all. Kept for 25 hours.';
comment on column queues.activity.run_seconds is 'How long these attempts ran, added up.';
comment on column queues.activity.delay_seconds is 'How long they had waited from due to start, added up.';
comment on column queues.activity.due is 'Waiting tasks that were due at the last sample of this time.';

-- The result of one health check: a code for what it found, names and numbers, and the latest error.
create type queues.health_line as (
  check_name text,
  level text,
  subject text,
  value double precision,
  code text,
  facts jsonb,
  error text
);

-- Which shard this database is. No row: the only database, whose ids carry the number 0.
create table queues.shard (
  shard_number smallint constraint shard_pkey primary key
    constraint number_fits_an_id check (shard_number between 0 and 255),
  shard_name text not null,
  key_shards smallint not null constraint some_shards_have_keys check (key_shards between 1 and 256),
  numbered_at timestamptz not null
);
create unique index one_shard_per_database on queues.shard ((true));
comment on table queues.shard is 'The number of this database among the shards. At most one row.';
comment on column queues.shard.shard_number is 'Byte 11 of the ids of its tasks.';
comment on column queues.shard.key_shards is
  'How many shards keys are spread over: those that there were at first. Never changes.';

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
