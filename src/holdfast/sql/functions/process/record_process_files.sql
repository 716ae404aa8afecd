-- Stores the digests of the files that were last applied for a process.
-- For holdfast_process, only for the owner of the process. Locks: the row of the process.
create or replace function queues.record_process_files(process text, files jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _owner oid;
begin
  select c.relowner into _owner from queues.process p
  join pg_namespace n on n.nspname = p.schema_name join pg_class c on c.relnamespace = n.oid
    and c.relname = p.root_table
  where p.process = record_process_files.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null'));
  elsif jsonb_typeof(files) is distinct from 'object' or length(files::text) > 65536 then
    raise exception using errcode = 'QF400', message = 'files must be an object of digests, of at most 64 KiB';
  end if;
  perform queues.check_process_owner(process, _owner);
  update queues.process p set files = record_process_files.files where p.process = record_process_files.process;
end
$$;

comment on function queues.record_process_files(text, jsonb) is
  'Stores the digests of the files that were last applied for a process.';
