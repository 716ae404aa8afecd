-- Refuses an invalid subscription: its patterns, sink, options, address or secrets.
create or replace function queues.check_subscription(
  name text, sink text, target text, event_types text[], type_prefixes text[], namespaces text[],
  options jsonb, secrets text[], max_attempts integer)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _pattern text;
  _problem text;
begin
  perform queues.check_name('name', name);
  perform queues.check_name('sink', sink);
  foreach _pattern in array event_types loop
    if _pattern is distinct from '*' then
      perform queues.check_name('event_types', case when _pattern like '%.*' then left(_pattern, -2) else _pattern end);
    end if;
    if _pattern like '%*%_' then
      raise exception using errcode = 'QF400', message = format('event_types %s is malformed', to_json(_pattern)),
        hint = 'A star stands alone or at the end, after a dot: *, order.*';
    end if;
    if split_part(_pattern, '.', 1) in ('task', 'worker') and not exists (
      select from unnest(queues.engine_event_types()) known(event_type)
      where queues.is_subscribed(queues.like_patterns(array[_pattern]), '{}', known.event_type, null))
    then
      raise exception using errcode = 'QF400', message = format('there are no events of type %s', to_json(_pattern)),
        hint = format('The engine emits %s.', array_to_string(queues.engine_event_types(), ', '));
    end if;
  end loop;
  perform queues.check_namespace(n) from unnest(namespaces) n;
  _problem := case
    when cardinality(event_types) = 0
      then 'event_types must hold at least one pattern, such as order.* or task.dead_letter'
    when cardinality(event_types) > 100 or cardinality(type_prefixes) > 100 or cardinality(namespaces) > 100
      then 'event_types, type_prefixes and namespaces hold at most 100 elements each'
    when array_position(type_prefixes, null) is not null or '' = any (type_prefixes)
      then 'type_prefixes must hold no nulls or empty texts'
    when target is null or target = '' or octet_length(target) > 2000
      then 'target must be between 1 and 2000 bytes long'
    when target ~ '[\u0001-\u0020\u007f-\u009f]' then 'target must hold neither white space nor control characters'
    when options is null or jsonb_typeof(options) <> 'object' or pg_column_size(options) > 8192
      then 'options must be an object of at most 8192 bytes'
    when max_attempts is null or max_attempts not between 1 and 1000 then 'max_attempts must be between 1 and 1000'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  perform queues.check_sink(sink, target, options);
  perform queues.check_secrets(secrets);
end
$$;

comment on function queues.check_subscription(text, text, text, text[], text[], text[], jsonb, text[], integer) is
  'Refuses an invalid subscription: its patterns, sink, options, address or secrets.';
