-- Answers a callback link of a run with one of its choices, counted from 1: sends the signal with the payload of that
-- choice. Returns kept; answered if the link was answered before, whatever the choice was; expired, ended or unknown.
-- One link gives one signal. The caller has verified the signature of the link.
-- For holdfast_operator. Locks: as signal.
create or replace function queues.answer_callback(task_id uuid, link text, choice integer)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _asked record;
  _payload jsonb;
  _answer text;
begin
  select r.signal, r.state into _asked from queues.read_callback(task_id, link) r;
  if not found then
    return 'unknown';
  elsif _asked.state <> 'open' then
    return _asked.state;
  end if;
  select s.result->'choices'->(choice - 1)->1 into _payload from queues.step s
  where s.task_id = answer_callback.task_id and starts_with(s.name, 'callback[') and s.kind = 's'
    and s.result->>'link' = answer_callback.link and choice >= 1;
  if _payload is null then
    raise exception using errcode = 'QF400', message = format('the link has no choice %s', choice),
      hint = 'Choices are counted from 1.';
  end if;
  _answer := queues.signal(task_id, _asked.signal, _payload, 'callback ' || link);
  return case when _answer in ('replayed', 'conflict') then 'answered' else _answer end;
end
$$;

comment on function queues.answer_callback(uuid, text, integer) is
  'Answers a callback link of a run with one of its choices, counted from 1.';
