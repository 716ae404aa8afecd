create table queues.retention (
  status text collate "C" not null constraint known_to_retention check (
    status in ('succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted', 'history', 'messages')),
  type_prefix text collate "C" not null,
  keep interval constraint kept_for_a_while check (keep >= interval '1 minute'),
  changed_at timestamptz,
  changed_by text,
  constraint one_policy_per_prefix primary key (status, type_prefix)
);
comment on table queues.retention is 'How long what is kept. Of several prefixes that fit a type, the longest decides.';
comment on column queues.retention.keep is 'Since the end, or the deletion; null is for ever.';
insert into queues.retention (status, type_prefix, keep) values
  ('succeeded', '', '7 days'),
  ('cancelled', '', '30 days'),
  ('failed', '', '90 days'),
  ('dead_letter', '', '90 days'),
  ('deleted', '', '30 days'),
  ('history', '', '90 days'),
  ('messages', '', '90 days');
