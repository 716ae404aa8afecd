-- Refuses a signal with which a run would have too many that it has not taken, or too large ones together. Called
-- after the signal was written, so that a repeated one is not refused. Transactions that are open at the same time do
-- not see each other's signals, and do not wait for each other: each of them can add as many as the limit. What a
-- worker reads of them is bounded by read_steps.
-- Internal: called by signal.
create or replace function queues.check_signals(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_signals');
  _most_bytes constant bigint := (select s.value from queues.setting s where s.name = 'max_signal_bytes');
  _count bigint;
  _bytes bigint;
begin
  select count(*), sum(s.bytes) into _count, _bytes
  from (select s.bytes from queues.signal s where s.task_id = check_signals.task_id limit _most + 1) s;
  if _count <= _most and _bytes <= _most_bytes then
    return;
  end if;
  -- Those that were taken do not count. Few runs get here, so the others do not look for the steps that took them.
  select count(*), sum(s.bytes) into _count, _bytes
  from (
    select s.bytes from queues.signal s
    where s.task_id = check_signals.task_id and (
      select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
    limit _most + 1) s;
  if _count > _most then
    raise exception using errcode = 'QF429',
      message = format('run %s has %s signals that it has not taken, and at most %s are kept', task_id, _most, _most),
      hint = 'Send it again when the run has taken some. holdfast runs show tells what it waits for. '
        'To keep more, raise max_signals in queues.setting.';
  elsif _bytes > _most_bytes then
    raise exception using errcode = 'QF429',
      message = format('with this one, run %s would have signals of %s bytes that it has not taken, and at most %s are '
        'kept', task_id, _bytes, _most_bytes),
      hint = 'Send it again when the run has taken some, or send references. '
        'To keep more, raise max_signal_bytes in queues.setting.';
  end if;
end
$$;

comment on function queues.check_signals(uuid) is
  'Refuses a signal with which a run would have too many that it has not taken, or too large ones together.';
