-- Units of installation. All of them are installed here: install.sql writes the rows.

create table queues.unit (
  unit text collate "C" constraint unit_pkey primary key,
  installed boolean not null,
  changed_at timestamptz not null,
  digest text not null
);
