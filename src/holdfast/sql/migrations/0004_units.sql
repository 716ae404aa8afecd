-- Units of installation. All of them are installed here: install.sql writes the rows.

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

comment on column queues.installation.digest is 'SHA-256 of the SQL that was last applied.';
