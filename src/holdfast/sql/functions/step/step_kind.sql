-- Returns the word for the code of a kind of step. No pinned path, so that a view can read it.
create or replace function queues.step_kind(code "char")
returns text
language sql immutable parallel safe
as $$
  select case code when 's' then 'step' when 't' then 'transaction' when 'z' then 'sleep' when 'm' then 'signal'
    when 'c' then 'children' when 'f' then 'first' when 'n' then 'since' when 'r' then 'removed' end
$$;

comment on function queues.step_kind("char") is 'Returns the word for the code of a kind of step.';
