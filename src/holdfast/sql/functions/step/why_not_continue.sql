-- Returns why a run cannot go on with these arguments, or null.
-- Internal: called by finish.
create or replace function queues.why_not_continue(payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'the arguments of the next run: the payload ' || case when jsonb_typeof(payload) is distinct from 'object'
    then 'is not an object'
    else queues.document_problem(payload, (select s.value from queues.setting s where s.name = 'max_payload_bytes')) end
$$;

comment on function queues.why_not_continue(jsonb) is 'Returns why a run cannot go on with these arguments, or null.';
