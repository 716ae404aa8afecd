-- Refuses steps past the maximum number of a run.
-- Internal: called by record_steps.
create or replace function queues.check_steps(runs jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most bigint;
  _step jsonb;
begin
  if jsonb_path_exists(runs, '$[*].steps[*] ? (@.number > 1000)') then  -- the minimum of the setting
    select s.value into _most from queues.setting s where s.name = 'max_steps';
    _step := jsonb_path_query_first(runs, '$[*].steps[*] ? (@.number > $most)', jsonb_build_object('most', _most));
    if _step is not null then
      raise exception using errcode = 'QF413',
        message = format('step %s is number %s of its run, and a run has at most %s steps',
        _step ->> 'name', _step ->> 'number', _most), hint = 'Begin again with ctx.continue_as.';
    end if;
  end if;
end
$$;

comment on function queues.check_steps(jsonb) is
  'Refuses steps past the maximum number of a run.';
