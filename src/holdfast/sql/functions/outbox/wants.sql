-- Returns whether a subscription matches an event. The event's type must match a pattern and, if there are prefixes,
-- the event must be about a task whose type begins with one. Patterns and prefixes are in the form that likes returns.
-- No pinned path, so that PostgreSQL can inline it.
create or replace function queues.wants(event_likes text[], prefix_likes text[], event_type text, task_type text)
returns boolean
language sql immutable parallel safe
as $$ select event_type like any (event_likes) and (prefix_likes = '{}' or coalesce(task_type like any (prefix_likes), false)) $$;

comment on function queues.wants(text[], text[], text, text) is 'Returns whether a subscription matches an event.';
