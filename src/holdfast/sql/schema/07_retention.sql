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
