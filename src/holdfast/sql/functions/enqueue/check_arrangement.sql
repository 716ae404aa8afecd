-- Refuses an element of a batch whose options after, when, unique, debounce and debounce_max are invalid or do not go
-- together. The place names the element in errors.
-- Internal: called by insert_arranged.
create or replace function queues.check_arrangement(element jsonb, place text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _unique constant boolean := element ?| array['unique', 'debounce'];
  _uuid constant text := '^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$';
  _problem text;
begin
  _problem := case
    when element ? 'after' and (jsonb_typeof(element -> 'after') <> 'array' or exists (
        select from jsonb_array_elements(case jsonb_typeof(element -> 'after') when 'array' then element -> 'after'
          else '[]' end) a(id) where jsonb_typeof(a.id) <> 'string' or a.id #>> '{}' !~ _uuid))
      then 'after must be an array of task ids'
    when element ? 'when' and not element ? 'after' then 'when needs after'
    when element ->> 'when' not in ('succeeded', 'ended')
      then format('when is %s: expected succeeded or ended', element -> 'when')
    when element ->> 'unique' not in ('waiting', 'unfinished')
      then format('unique is %s: expected waiting or unfinished', element -> 'unique')
    when element ?& array['unique', 'debounce'] then 'give either unique or debounce'
    when element ? 'debounce_max' and not element ? 'debounce' then 'debounce_max needs debounce'
    when element ? 'after' and _unique then 'a task that comes after others cannot be unique or debounced'
    when _unique and jsonb_typeof(element -> 'idempotency_key') is distinct from 'string'
      then 'a unique or debounced task needs an idempotency_key'
    when element ? 'debounce' and element ? 'run_at' then 'a debounced task has no run_at of its own'
    end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = place || _problem;
  end if;
  if element ? 'debounce' then
    perform queues.parse_duration('debounce', element ->> 'debounce', interval '0', interval '1 year', place);
  end if;
  if element ? 'debounce_max' then
    perform queues.parse_duration('debounce_max', element ->> 'debounce_max', interval '0', interval '1 year', place);
  end if;
end
$$;

comment on function queues.check_arrangement(jsonb, text) is
  'Refuses an element of a batch whose options after, when, unique, debounce and debounce_max do not go together.';
