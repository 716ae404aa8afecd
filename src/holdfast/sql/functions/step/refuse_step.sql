-- Raises the error of a step, or of a failed try, that cannot be recorded; returns nothing.
-- Internal: called by insert_steps for such a step only, because a check of its own would cost each step some
-- microseconds.
create or replace function queues.refuse_step(name text, number integer, kind text)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF400',
    message = format('step %s with the number %s and the kind %s cannot be recorded',
      coalesce(to_json(left(name, 60))::text, 'null'), coalesce(number::text, 'null'),
      coalesce(to_json(left(kind, 60))::text, 'null')),
    hint = 'A step has a name of 1 to 500 bytes, a number from 0 on, and a kind: step, transaction, sleep, signal, '
      'children, first or since. A failed try has a name and a number, too.';
end
$$;

comment on function queues.refuse_step(text, integer, text) is
  'Raises the error of a step, or of a failed try, that cannot be recorded.';
