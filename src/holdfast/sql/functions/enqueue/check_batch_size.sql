-- Raises QF413 if a batch has more elements than the setting max_batch allows, else returns true.
create or replace function queues.check_batch_size(field text, size integer)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most bigint := 1000;  -- the minimum of the setting
begin
  if size > _most then
    select s.value into _most from queues.setting s where s.name = 'max_batch';
  end if;
  if size > _most then
    raise exception using errcode = 'QF413',
      message = format('%s has %s elements, and at most %s are allowed in one call', field, size, _most),
      hint = 'Send it in several calls.';
  end if;
  return true;
end
$$;

comment on function queues.check_batch_size(text, integer) is
  'Raises QF413 if a batch has more elements than the setting max_batch allows, else returns true.';
