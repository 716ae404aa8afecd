-- Raises QF400 if the arguments of a claim are invalid. Returns true, so that a declaration can call it without a
-- query.
create or replace function queues.check_claim(
  worker_id text, max_tasks integer, queues text[], type_prefixes text[], lease interval, after jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  _problem := case
    when worker_id is null or worker_id = '' or octet_length(worker_id) > 200
      then 'worker_id must be between 1 and 200 bytes long'
    when max_tasks is null or max_tasks not between 1 and 10000 then 'max_tasks must be between 1 and 10000'
    when array_position(queues, null) is not null then 'queues must not contain nulls'
    when array_position(type_prefixes, null) is not null then 'type_prefixes must not contain nulls'
    when lease < interval '1 second' or lease > interval '1 day' then 'lease must be between 1 second and 1 day'
    when jsonb_typeof(after) <> 'object' then 'after must be an object'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  return true;
end
$$;

comment on function queues.check_claim(text, integer, text[], text[], interval, jsonb) is
  'Raises QF400 if the arguments of a claim are invalid.';
