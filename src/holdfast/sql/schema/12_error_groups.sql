-- Errors of one type that differ only in numbers, ids and quoted values form a group. The leader counts them here, some
-- seconds after they were written, so that finish does not pay for it.
create table queues.error_group (
  error_group text collate "C" constraint error_group_pkey primary key,
  type text collate "C" not null,
  kind text not null,
  exception text,
  title text not null,
  first_seen timestamptz not null,
  last_seen timestamptz not null,
  errors bigint not null,
  example_id uuid not null,
  example_error_id bigint not null,
  step text
) with (fillfactor = 70);
create index error_groups_of_type on queues.error_group (type);
create index error_group_to_forget on queues.error_group (last_seen);
comment on table queues.error_group is 'Errors of one type that differ only in numbers, ids and quoted values.';
comment on column queues.error_group.title is 'The message without numbers, ids and quoted values.';
comment on column queues.error_group.errors is 'How many errors of this group were counted in all.';
comment on column queues.error_group.step is 'The step that failed last with it, if tries of steps failed.';

create table queues.error_count (
  bucket_at timestamptz not null,
  error_group text collate "C" not null,
  errors integer not null,
  ended integer not null,
  constraint one_count_per_bucket primary key (bucket_at, error_group)
) with (fillfactor = 70);
create index counts_of_group on queues.error_count (error_group, bucket_at);
comment on table queues.error_count is
  'Errors per group and minute, or per hour if they are older than a day. Kept for 30 days.';
comment on column queues.error_count.ended is 'How many of them ended their task.';

create table queues.error_progress (
  only_one boolean constraint error_progress_pkey primary key default true
    constraint error_progress_is_one_row check (only_one),
  counted_to bigint not null
);
insert into queues.error_progress (counted_to) values (0);
comment on table queues.error_progress is 'Up to which error the groups have been counted.';

-- Numbers of errors that were not visible when later ones were counted: their transaction was open, or rolled back.
create table queues.error_gap (
  error_id bigint constraint error_gap_pkey primary key,
  noticed_before xid8 not null
);
comment on table queues.error_gap is 'Errors that may still become visible, although later ones have been counted.';
comment on column queues.error_gap.noticed_before is
  'If every transaction before this one has ended, the error was rolled back.';

-- What a search asks for, in the form in which tasks are compared with it.
create type queues.wanted_text as (
  words text,
  error_group text,
  type text,
  path jsonpath,
  search_errors boolean
);
