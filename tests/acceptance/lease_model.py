"""The protocol of leases as a small machine, so that all its histories can be walked through.

One task, two workers, a sweep, a person who may cancel. Messages are late, lost or doubled. A worker dies and
comes back under the same name, the server crashes and forgets what no client waited for. A lease may end at
any moment: whatever a clock could do is among the histories. That the engine follows the same rules is what
tests/concurrency/test_model.py shows.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

WORKERS = ("w1", "w2")
REPORTS = ("succeeded", "retry", "released")


@dataclass(frozen=True)
class Rules:
    """How the engine goes about it; each can be got wrong."""

    asks_for_the_token: bool = True
    counts_at_the_claim: bool = True
    sweeps_only_what_is_leased: bool = True
    skips_tokens_after_a_crash: bool = True
    keeps_ends: bool = True


@dataclass(frozen=True)
class Ticket:
    """A claim, whether its worker knows of it, and what that has sent: it may arrive at any time."""

    worker: str
    token: int
    known: bool
    report: str = ""


@dataclass(frozen=True)
class State:
    place: str = "ready"
    attempt: int = 0
    token: int = 0
    """Of the lease, or of the report that ended the task."""
    holder: str = ""
    issued: int = 0
    runs: int = 0
    """Claims that counted, less those that were given back or undone."""
    tickets: tuple[Ticket, ...] = ()
    settled: frozenset[int] = frozenset()
    accepted: tuple[str, ...] = ()
    """Who was told that their success stands."""
    crashed: bool = False

    @property
    def over(self) -> bool:
        return self.place not in {"ready", "lease"}


@dataclass(frozen=True)
class Machine:
    rules: Rules
    max_attempts: int
    most_claims: int

    def next(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._claims(state)
        yield from self._reports(state)
        yield from self._sweep(state)
        if not state.over:
            yield "cancel", replace(state, place="cancelled", token=0, holder="")
        yield from self._deaths(state)

    def _claims(self, state: State) -> Iterator[tuple[str, State]]:
        if state.place != "ready" or len(state.tickets) == self.most_claims:
            return
        token = state.issued + 1
        attempt = state.attempt + self.rules.counts_at_the_claim
        for worker in WORKERS if state.tickets else WORKERS[:1]:  # who is first is only a name
            for known in (True, False):  # the answer may be lost
                ticket = Ticket(worker, token, known)
                yield (
                    f"{worker} claims with {token}{'' if known else ', and does not hear of it'}",
                    replace(
                        state,
                        place="lease",
                        attempt=attempt,
                        token=token,
                        holder=worker,
                        issued=token,
                        runs=state.runs + 1,
                        tickets=(*state.tickets, ticket),
                    ),
                )

    def _reports(self, state: State) -> Iterator[tuple[str, State]]:
        for place, ticket in enumerate(state.tickets):
            if ticket.known and not ticket.report:
                for report in REPORTS:
                    sent = replace(ticket, report=report)
                    tickets = (*state.tickets[:place], sent, *state.tickets[place + 1 :])
                    yield (
                        f"{ticket.worker} sends {report} with {ticket.token}",
                        replace(state, tickets=tickets),
                    )
            if ticket.report:
                yield f"{ticket.report} with {ticket.token} arrives", self._settle(state, ticket)

    def _settle(self, state: State, ticket: Ticket) -> State:
        """It may arrive again and again, also after its worker has died."""
        held = state.place == "lease" and state.holder == ticket.worker
        if self.rules.asks_for_the_token:
            held = held and state.token == ticket.token
        late = state.over and not self.rules.keeps_ends and ticket.token not in state.settled
        if not held and not late:
            return state
        after = replace(state, holder="", settled=state.settled | {ticket.token})
        if not self.rules.counts_at_the_claim:
            after = replace(after, attempt=state.attempt + 1)
        if ticket.report == "succeeded":
            told = (*state.accepted, f"{ticket.worker} with {ticket.token}")
            return replace(after, place="succeeded", token=ticket.token, accepted=told)
        if ticket.report == "released":
            return replace(after, place="ready", token=0, attempt=after.attempt - 1, runs=after.runs - 1)
        return replace(after, place=self._place_after(after.attempt), token=0)

    def _sweep(self, state: State) -> Iterator[tuple[str, State]]:
        stale = state.over and state.place != "swept" and not self.rules.sweeps_only_what_is_leased
        if state.place == "lease" or stale:
            yield "sweep", replace(state, place=self._place_after(state.attempt), token=0, holder="")

    def _place_after(self, attempt: int) -> str:
        return "ready" if attempt < self.max_attempts else "dead_letter"

    def _deaths(self, state: State) -> Iterator[tuple[str, State]]:
        for worker in WORKERS:
            if any(ticket.worker == worker and ticket.known for ticket in state.tickets):
                forgotten = tuple(
                    replace(ticket, known=False) if ticket.worker == worker else ticket
                    for ticket in state.tickets
                )
                yield f"{worker} dies", replace(state, tickets=forgotten)
        if state.place == "lease" and not state.crashed:
            issued = state.issued if self.rules.skips_tokens_after_a_crash else state.issued - 1
            yield (
                "the server crashes and forgets the claim",
                replace(
                    state,
                    place="ready",
                    attempt=state.attempt - self.rules.counts_at_the_claim,
                    token=0,
                    holder="",
                    issued=issued,
                    runs=state.runs - 1,
                    crashed=True,
                ),
            )


@dataclass
class Walk:
    """Every state that can be reached, and the first history that breaks a rule."""

    states: int = 0
    steps: int = 0
    broken: str = ""
    history: tuple[str, ...] = ()


def walk(machine: Machine) -> Walk:
    begin = State()
    came_from: dict[State, tuple[State, str] | None] = {begin: None}
    before: dict[State, list[State]] = {begin: []}
    waiting, found = deque([begin]), Walk()
    while waiting:
        state = waiting.popleft()
        for step, following in machine.next(state):
            found.steps += 1
            if following == state:
                continue
            new = following not in came_from
            if new:
                came_from[following] = (state, step)
                before[following] = []
                waiting.append(following)
            before[following].append(state)
            if (why := _broken(machine, state, following)) and not found.broken:
                found.broken = why
                found.history = (*_history(came_from, state), step)
                found.states = len(came_from)
                return found
    found.states = len(came_from)
    stuck = came_from.keys() - _can_end(before)
    if stuck:
        state = next(iter(stuck))
        found.broken, found.history = "it can never end", _history(came_from, state)
    return found


def _broken(machine: Machine, state: State, following: State) -> str:
    tokens = [ticket.token for ticket in following.tickets]
    newly = following.accepted and not state.accepted
    rules = {
        "two successes were accepted": len(following.accepted) <= 1,
        "a task that had ended changed": not state.over or following.place == state.place,
        "it ran more often than it may": following.runs <= machine.max_attempts,
        "attempts were miscounted": 0 <= following.attempt <= machine.max_attempts,
        "an older claim was heard after a newer one": not newly or following.token == tokens[-1],
        "a token was issued twice": len(tokens) == len(set(tokens)),
    }
    return next((broken for broken, holds in rules.items() if not holds), "")


def _history(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    steps: list[str] = []
    while (origin := came_from[state]) is not None:
        state, step = origin
        steps.append(step)
    return tuple(reversed(steps))


def _can_end(before: dict[State, list[State]]) -> set[State]:
    """From these an end can still be reached."""
    found = {state for state in before if state.over}
    waiting = deque(found)
    while waiting:
        for earlier in before[waiting.popleft()]:
            if earlier not in found:
                found.add(earlier)
                waiting.append(earlier)
    return found
