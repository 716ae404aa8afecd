-- Limits the running tasks of a queue or type, in total and per concurrency key, and the rate at which they start.
-- Parameters that are not given are not limited. Running tasks count.
-- For holdfast_operator. Locks: the limit's row of queues.limit_lock, then the limit; waits for at most five seconds.
create or replace function queues.set_limit(
  subject text,
  name text,
  max_running integer default null,
  per_key integer default null,
  rate integer default null,
  per interval default null,
  reason text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  _problem text;
begin
  _problem := case
    when subject is null or subject not in ('queue', 'type')
      then format('subject %s is not one of queue, type', coalesce(to_json(subject)::text, 'null'))
    when num_nonnulls(max_running, per_key, rate) = 0 then 'a limit needs max_running, per_key or rate'
    when max_running < 1 or per_key < 1 or rate < 1 then 'max_running, per_key and rate must be at least 1'
    when (rate is null) <> (per is null) then 'rate and per go together'
    when per < interval '1 millisecond' or per > interval '1 day' then 'per must be between 1 millisecond and 1 day'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem,
      hint = 'To remove a limit, use drop_limit; to stop a queue, pause.';
  end if;
  perform queues.check_name(subject, name);
  reason := left(reason, 2000);
  perform queues.hold_limit(subject, name);
  insert into queues.task_limit as t (
    subject, name, max_running, per_key, rate, per, tokens, counted_at, set_at, set_by, reason)
  values (subject, name, max_running, per_key, rate, per, coalesce(rate, 0), _now, _now, session_user, reason)
  on conflict on constraint one_limit_per_subject do update
  set max_running = excluded.max_running, per_key = excluded.per_key, rate = excluded.rate, per = excluded.per,
    tokens = case when t.rate is null then excluded.tokens else least(excluded.rate, queues.tokens_at(t, _now)) end,
    counted_at = _now, set_at = _now, set_by = excluded.set_by, reason = excluded.reason;

  perform queues.apply_limit(subject, name);
end
$$;

comment on function queues.set_limit(text, text, integer, integer, integer, interval, text) is
  'Limits the running tasks of a queue or type, in total and per concurrency key, and the rate at which they start.';
