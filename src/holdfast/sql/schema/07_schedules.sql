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
