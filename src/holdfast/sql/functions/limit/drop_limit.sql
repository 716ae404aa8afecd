-- Takes the limit of a queue or a type away; says whether there was one. For holdfast_operator. Locks: the limit.
create or replace function queues.drop_limit(subject text, name text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from queues.task_limit t where t.subject = drop_limit.subject and t.name = drop_limit.name;
  return found;
end
$$;

comment on function queues.drop_limit(text, text) is 'Takes the limit of a queue or a type away; says whether there was one.';
