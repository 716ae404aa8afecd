-- Activity has one period instead of three, and no histograms, which are in the metrics of workers. Of a day, the
-- quarters of an hour that were counted stay.

drop view if exists queues.queue_status;
alter table queues.activity set schema internal;
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
insert into queues.activity (at, queue, type, succeeded, failed, cancelled, retrying, run_seconds, due, running)
select a.at, a.queue, a.type, a.succeeded, a.failed + a.dead_letter, a.cancelled, a.retrying, a.run_seconds, a.due,
  a.running
from internal.activity a where a.period = 15 and a.at > queues.clock() - interval '25 hours';
drop table internal.activity;
