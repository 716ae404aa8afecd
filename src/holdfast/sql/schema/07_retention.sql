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
  ('messages', '', '90 days'),
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
