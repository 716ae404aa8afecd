-- Returns whether a subscription matches an event. The event's type must match a pattern and, if there are prefixes,
-- the event must be about a task whose type begins with one. Patterns and prefixes are as like_patterns returns them.
-- No pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_subscribed(event_patterns text[], prefix_patterns text[], event_type text,
  task_type text)
returns boolean
language sql immutable parallel safe
as $$ select event_type like any (event_patterns)
  and (prefix_patterns = '{}' or coalesce(task_type like any (prefix_patterns), false)) $$;

comment on function queues.is_subscribed(text[], text[], text, text) is
  'Returns whether a subscription matches an event.';
