-- Runs a statement that calls a function of somebody else. Belongs to holdfast_caller, which has no right except to
-- execute the functions of processes. So whatever the owner of the function makes of it, its code runs with the rights
-- of its owner or with none, and it cannot set another role, because PostgreSQL refuses that inside security definer.
-- Internal: only internal.call_checked calls it. holdfast_caller may not use this schema, so its code cannot alter
-- this.
create or replace function internal.call_function(statement text, arguments jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _answer jsonb;
begin
  execute statement into _answer using arguments;
  return _answer;
end
$$;

comment on function internal.call_function(text, jsonb) is
  'Runs a statement that calls a function of somebody else, without any other right.';
