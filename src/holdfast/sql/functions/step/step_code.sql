-- Returns the code under which a kind of step is stored. Null for unknown kinds, which insert_steps refuses.
-- Internal.
create or replace function queues.step_code(kind text)
returns "char"
language sql immutable parallel safe
as $$
  select (case kind when 'step' then 's' when 'transaction' then 't' when 'sleep' then 'z' when 'signal' then 'm'
    when 'children' then 'c' when 'first' then 'f' when 'since' then 'n' end)::"char"
$$;

comment on function queues.step_code(text) is 'Returns the code under which a kind of step is stored.';
