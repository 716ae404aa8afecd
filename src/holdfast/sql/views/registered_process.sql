-- The business processes of this database, and the functions that run, repair, end and read them.
create or replace view queues.registered_process with (security_barrier) as
select p.process, p.kind, p.schema_name, p.root_table, p.supervisor, p.repair, p.cancel, p.history, p.files,
  p.registered_at, p.registered_by, p.kickoff
from queues.process p;

comment on view queues.registered_process is
  'The business processes of this database, and the functions that run, repair, end and read them.';
