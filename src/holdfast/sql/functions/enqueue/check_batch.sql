-- Refuses what is not a batch: not an array, too long, or elements that are not objects with known, non-null members.
create or replace function queues.check_batch(field text, batch jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_batch');
begin
  if batch is null or jsonb_typeof(batch) <> 'array' then
    raise exception using errcode = 'QF400', message = format('%s must be an array of objects', field);
  elsif jsonb_array_length(batch) > _most then
    raise exception using errcode = 'QF413',
      message = format('%s has %s elements, and at most %s are allowed in one call', field, jsonb_array_length(batch), _most),
      hint = 'Send it in several calls.';
  end if;
end
$$;

comment on function queues.check_batch(text, jsonb) is 'Refuses what is not a batch: not an array, or too long.';
