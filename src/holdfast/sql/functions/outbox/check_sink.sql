-- Refuses an unknown sink, an invalid target, unknown options, and variables other than HOLDFAST_SINK_*. Dispatchers
-- report problems that only they can detect through dispatcher_heartbeat.
create or replace function queues.check_sink(sink text, target text, options jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _reference constant text := '^env:HOLDFAST_SINK_[A-Za-z0-9_]{1,80}$';
  _known record;
  _odd text;
begin
  select referred.value into _odd
  from (
    select check_sink.target as value
    union all select o.value #>> '{}' from jsonb_each(options) o
    union all select h.value from jsonb_each_text(case jsonb_typeof(options -> 'headers')
      when 'object' then options -> 'headers' else '{}' end) h
  ) referred
  where referred.value like 'env:%' and referred.value !~ _reference limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s cannot be used', to_json(left(_odd, 100))),
      hint = 'Only variables that begin with HOLDFAST_SINK_ can be named: env:HOLDFAST_SINK_TOKEN.';
  end if;

  select k.* into _known from queues.sink_options() k where k.sink = check_sink.sink;
  if not found then
    if not exists (select from queues.dispatcher d where check_sink.sink = any (d.sinks)) then
      raise exception using errcode = 'QF400', message = format('no dispatcher has a sink %s', to_json(sink)),
        hint = format('Allowed: %s. For a sink of a package, first start a dispatcher that has it installed.', (
          select string_agg(distinct named.sink, ', ') from (
            select k.sink from queues.sink_options() k union all select unnest(d.sinks)
            from queues.dispatcher d) named));
    end if;
    return;
  end if;

  if target !~ _known.target and target not like 'env:%' then
    raise exception using errcode = 'QF400', message = format('target is not valid for the sink %s', sink),
      hint = format('Give one such as %s, or env:HOLDFAST_SINK_NAME.', _known.example);
  end if;
  select o.key into _odd from jsonb_each(options) o
  where o.value <> 'null' and (_known.options ->> o.key) is distinct from jsonb_typeof(o.value) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('options.%s is %s', _odd, case when _known.options ? _odd
        then format('not a %s', _known.options ->> _odd) else format('not an option of the sink %s', sink) end),
      hint = format('Its options: %s.',
        coalesce((select string_agg(k, ', ' order by k) from jsonb_object_keys(_known.options) k), 'none'));
  end if;
end
$$;

comment on function queues.check_sink(text, text, jsonb) is
  'Refuses an unknown sink, an invalid target, unknown options, and variables other than HOLDFAST_SINK_*.';
