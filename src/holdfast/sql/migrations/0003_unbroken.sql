-- Unlogged, so that a crash empties it, and a standby that is promoted finds it empty: then the last claims may be
-- forgotten, because they did not wait for the disk, and the sequence would issue their tokens again.
create unlogged table queues.unbroken (
  only_one boolean constraint unbroken_pkey primary key default true constraint unbroken_is_one_row check (only_one)
);
insert into queues.unbroken default values;
comment on table queues.unbroken is 'Has its row unless the server has crashed since the last claim.';
