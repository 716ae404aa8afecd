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
