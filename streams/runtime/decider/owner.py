"""The owner of one partition: decides commands, and gives up as soon as it may not be the only one.

No I/O, no clock, no randomness of its own: all of it comes through `Ports`, so that the same code
runs on Kafka, in rule tests and in a simulation that loses, delays and reorders. The numbers in
comments are those of the model-checked protocol (A1–A12).

An owner is always in one of three phases, and reads its event partition in all of them:

- **waiting**: it has no epoch, and claims when its time has come and the partition is still its;
- **claiming**: its claim is sent; what it reads before the claim is its recovery;
- **owning**: its claim was read back; it decides.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streams.runtime.decider.codec import Codec, Unreadable
from streams.runtime.decider.filter import Accepted, BrokenChain, Verdict, accept, columns
from streams.runtime.decider.folded import Folded, FoldFailed, Told
from streams.runtime.decider.judge import Incoming, Judge, Judged
from streams.runtime.decider.ports import CommandsReplaced, Last, Phase, Ports, Records, Tally
from streams.runtime.decider.recent import Heard, Recent
from streams.runtime.decider.records import OWNERSHIP_CLAIMED, OwnershipClaimed
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Decider, Envelope, Event
from streams.runtime.decider.wire import (
    CAUSE,
    DECISION,
    EPOCH_BYTES,
    Cause,
    Decision,
    Headers,
    envelope_of,
    is_timer,
)
from streams.runtime.position import FilterState

BACKOFF_MS_FIRST = 100
BACKOFF_MS_MAX = 5_000
CLAIMED = OWNERSHIP_CLAIMED.fullname


class Owner:
    """The owner of partition `partition` of a decider; `folded` is where it starts from.

    One thread at a time. Raises `BrokenChain`, `FoldFailed` or `CommandsReplaced`: then the process
    must stop, and a person look.
    """

    def __init__(
        self,
        decider: Decider,
        partition: int,
        folded: Folded,
        codec: Codec,
        ports: Ports,
        *,
        writer: str,
        commands_topic_id: str,
    ) -> None:
        self.decider = decider
        self.partition = partition
        self.folded = folded
        self.phase = Phase.WAITING
        self.assigned = False
        self.tally = Tally(Counter(), Counter(), Counter())
        self._judge = Judge(decider, codec, folded)
        self._place = (decider.events.name, partition)
        self._codec = codec
        self._ports = ports
        self._writer = writer
        self._commands_topic_id = commands_topic_id
        self._flying: deque[Judged] = deque()
        self._recent = Recent()
        self._nonce = ""
        self._claim_offset = -1
        self._sign: Callable[[int, int], bytes] = Decision(-1, "00" * 16, -1, -1).signer()
        self._seq = -1
        self._source = -1
        self._now_ms = 0
        self._append = ports.append
        self._decided = self.tally.decided
        self._cause_ms = -1
        self._cause = (CAUSE, b"")
        self._since_ms = 0
        self._retry_ms = 0
        self._backoff_ms = 0
        self._unsaved = 0
        self._last: Last | None = None

    # -- what the world tells -------------------------------------------------------------------

    def assign(self) -> None:
        """The partition of the command topic is this process's now: claim (A4)."""
        self.assigned = True
        self._backoff_ms = 0
        self._answer_recent()
        self._claim()

    def release(self) -> None:
        """It is no longer: what is in flight may still land and will be answered by the next."""
        self.assigned = False
        self._drop()

    def failed(self, nonce: str, reason: str = "produce") -> None:
        """A record of that claim was not delivered, or nobody knows (A7)."""
        if nonce == self._nonce and self.phase is not Phase.WAITING:
            self._abandon(reason)

    def tick(self, *, confirmed_ms: int, idle: bool) -> None:
        """Let time pass. `confirmed_ms`: when the group last showed, by a successful poll, that the
        partition is still this process's. `idle`: no command is waiting to be decided.
        """
        now_ms = self._ports.monotonic_ms()
        if self.phase is Phase.WAITING:
            # A8: only a poll after the epoch was given up shows that the assignment still stands.
            if self.assigned and confirmed_ms > self._since_ms and now_ms >= self._retry_ms:
                self._claim()
        elif self.phase is Phase.CLAIMING:
            if now_ms - self._since_ms > self.decider.deadline_ms:
                self._abandon("claim_deadline")
        elif self._flying and now_ms - self._flying[0].sent_ms > self.decider.deadline_ms:
            self._abandon("deadline")
        elif idle:
            self._now_ms = now_ms
            self._fire(self._ports.wall_ms())

    @property
    def in_flight(self) -> int:
        """Decisions that are not read back yet."""
        return len(self._flying)

    @property
    def next_timer_ms(self) -> int | None:
        """When the next timer is due, by the wall clock; None for never."""
        return self.folded.state.next_due_ms

    # -- epochs ---------------------------------------------------------------------------------

    def _claim(self) -> None:
        """A1, A4: a claim with a nonce that was never used."""
        self._nonce = self._ports.nonce()
        self.phase = Phase.CLAIMING
        self._since_ms = self._ports.monotonic_ms()
        self.tally.claims += 1
        row = OwnershipClaimed(self._nonce, self._commands_topic_id, self._writer)
        _, value = self._codec.encode(row)
        self._ports.append(self._nonce, b"", value, [])

    def _begin(self, claim_offset: int) -> None:
        """The claim was read back, and all before it: decide from here (A4, A10)."""
        state = self.folded.filter
        self.phase = Phase.OWNING
        self._claim_offset = claim_offset
        self._sign = Decision(claim_offset, self._nonce, -1, -1).signer()
        self._seq, self._source = state.seq, state.source_offset
        self._ports.ask_commands(state.source_offset + 1)

    def _abandon(self, reason: str) -> None:
        """A7: forget what is ahead, and never write under this epoch again."""
        self.tally.abandoned[reason] += 1
        self._drop()
        self._backoff_ms = min(max(BACKOFF_MS_FIRST, 2 * self._backoff_ms), BACKOFF_MS_MAX)
        self._retry_ms = self._since_ms + round(self._backoff_ms * (0.5 + self._ports.spread()))

    def _drop(self) -> None:
        self.phase = Phase.WAITING
        self._nonce = ""
        self._since_ms = self._ports.monotonic_ms()
        self.folded.roll_back([flying.steps for flying in reversed(self._flying)])
        self._flying.clear()

    # -- reading back ---------------------------------------------------------------------------

    def read(self, records: Records) -> None:
        """Take the next records of the event partition, in order and without a hole."""
        at, end = 0, len(records.offsets)
        while at < end:
            if self._flying:
                at = self._confirm(records, at, end)
            if at < end:
                at = self._follow(records, at, end)
        if end:
            last = end - 1
            self._last = Last(records.offsets[last], records.values[last], records.headers[last])
        if self._unsaved >= self.decider.snapshot_events:
            self.save()

    def save(self) -> None:
        """Snapshot what was read back (A5), if there is anything new."""
        if self._last is None or not self._unsaved:
            return
        self._unsaved = 0
        image = self.folded.image([flying.steps for flying in reversed(self._flying)])
        self._ports.snapshot(image, self.folded.filter, self._last)

    def _confirm(self, records: Records, at: int, end: int) -> int:
        """Take own events as long as they are the expected ones.

        An event with the signature of the oldest decision in flight is accepted by the reader
        rule: nothing else was read since the one before it, so epoch and number are the next ones.
        """
        flying, decisions, offsets = self._flying, records.decisions, records.offsets
        begin, done, clock_ms = at, None, 0
        while at < end and flying:
            if decisions[at] != flying[0].signature:
                break
            done = flying.popleft()
            envelope = done.envelope
            if envelope is not None:
                clock_ms = done.event.time_ms
                if envelope.idempotency_key or envelope.reply_to:
                    self._committed(done, envelope, offsets[at])
            at += 1
        if done is not None:
            # Commands are answered in order of their append times: the last is the newest.
            self.folded.passed(clock_ms)
            seq = self.folded.filter.seq + at - begin
            epoch = (self._claim_offset, self._nonce)
            self.folded.filter = FilterState(*epoch, seq, done.source_offset)
            self.folded.next_offset = offsets[at - 1] + 1
            self._unsaved += at - begin
            self._backoff_ms = 0
        return at

    def _committed(self, done: Judged, envelope: Envelope, offset: int) -> None:
        event = Event(done.event.record, done.event.row, done.event.time_ms, offset)
        self._reply(self.folded.settle(event, envelope), envelope, done.source_offset)

    def _reply(self, told: Told | None, envelope: Envelope, source: int) -> None:
        if told is not None and envelope.reply_to:
            what = (envelope.correlation_id, told.status, told.body, *self._place, told.offset)
            answer = Answer(*what, source, told.replay, envelope.subject)
            self._ports.answer(envelope.reply_to, answer)

    def _follow(self, records: Records, at: int, end: int) -> int:
        """Run the reader rule over records that are not the expected own ones; returns how far.

        It stops behind the own claim, and when owning goes record by record: each may end that.
        """
        if self.phase is Phase.OWNING:
            end = at + 1
        found = self._codec.decode(records.values[at:end])
        claims = {
            row: self._checked(one[1]).nonce
            for row, one in enumerate(found)
            if not isinstance(one, Unreadable) and one[0] == CLAIMED
        }
        if self.phase is Phase.CLAIMING:
            mine = (row for row, nonce in claims.items() if nonce == self._nonce)
            end = at + next(mine, end - at - 1) + 1
            found = found[: end - at]
            claims = {row: nonce for row, nonce in claims.items() if row < end - at}
        raw = records.decisions[at:end]
        verdicts = accept(
            self.folded.filter,
            records.offsets[at:end],
            columns(raw),
            claims,
            lambda row: is_timer(records.headers[at + row]),
        )
        self._fold(records, at, found, verdicts)
        self.folded.filter = verdicts.state
        self.folded.next_offset = records.offsets[end - 1] + 1
        self._consider(raw, claims, records.offsets[end - 1], verdicts)
        return end

    def _checked(self, claim: OwnershipClaimed) -> OwnershipClaimed:
        """A10: source offsets are those of one topic; a re-created one has other commands."""
        if claim.commands_topic_id != self._commands_topic_id:
            raise CommandsReplaced(
                f"{self._place[0]}/{self.partition} answers commands of topic id "
                f"{claim.commands_topic_id}; {self.decider.commands.name} is now "
                f"{self._commands_topic_id}: it was re-created. Begin a new event topic, too"
            )
        return claim

    def _consider(
        self,
        raw: Sequence[bytes | None],
        claims: dict[int, str],
        last_offset: int,
        verdicts: Accepted,
    ) -> None:
        """What these records mean for the own epoch."""
        for verdict in (Verdict.EPOCH, Verdict.SEQ):
            if refused := int((verdicts.codes == verdict).sum()):
                self.tally.stale[verdict.name.lower()] += refused
        if self.phase is Phase.CLAIMING and claims.get(len(raw) - 1) == self._nonce:
            self._begin(last_offset)
        elif self.phase is Phase.OWNING:
            if claims:  # A7: any later claim, also a repeat of the own one, ends the epoch
                self._abandon("claim")
            elif verdicts.mask.any():
                raise BrokenChain("an event of this epoch was accepted that was never decided")
            elif raw[0] is not None and raw[0][:EPOCH_BYTES] == self._sign(0, 0)[:EPOCH_BYTES]:
                self._abandon("refused")

    def _fold(self, records: Records, at: int, found: Sequence[Any], verdicts: Accepted) -> None:
        """Fold accepted events that were not decided here under the current epoch."""
        rows = verdicts.rows(Verdict.ACCEPTED).tolist()
        for row in rows:
            headers = records.headers[at + row] or []
            place = f"{self._place[0]}/{self.partition}/{records.offsets[at + row]}"
            event, envelope = self._applied(found[row], headers, place)
            event = Event(event.record, event.row, event.time_ms, records.offsets[at + row])
            told = self.folded.settle(event, envelope)
            if told is not None and envelope is not None:
                source = Decision.unpack(headers[0][1]).source_offset
                self._recent.add(Heard(records.append_ms(at + row), told, envelope, source))
        if self.assigned:
            self._answer_recent()
        self.tally.folded += len(rows)
        self._unsaved += len(rows)

    def _answer_recent(self) -> None:
        """A9: whoever decided these may have died before it could tell."""
        for heard in self._recent.take(self._ports.wall_ms()):
            self._reply(heard.told, heard.envelope, heard.source_offset)

    def _applied(self, one: Any, headers: Headers, place: str) -> tuple[Event, Envelope | None]:
        """Fold one event of the log; it, and the envelope of its command."""
        if isinstance(one, Unreadable):
            raise FoldFailed(f"{place}: {one.reason}")
        try:
            cause = Cause.of(headers)
            record, row = one
            event = Event(record, row, cause.time_ms)
            self.folded.apply(event, cause.timer)
        except Exception as error:
            raise FoldFailed(f"{place}: {type(error).__name__}: {error}") from error
        self.folded.state.settle()
        return event, None if cause.timer else envelope_of(headers, place)

    # -- deciding -------------------------------------------------------------------------------

    def decide(self, commands: Iterable[Incoming]) -> int:
        """Decide commands in offset order, as many as there is room for now; returns how many
        are over and done with. Call again with the rest after `read`.
        """
        self._now_ms = self._ports.monotonic_ms()
        flying, most = self._flying, self.decider.in_flight_max
        state, judge = self.folded.state, self._judge.command
        done = 0
        for one in commands:
            command = one.command
            if self.phase is not Phase.OWNING:
                return done
            if command.offset > self._source:
                time_ms = command.time_ms
                heap = state.heap
                if heap and heap[0][0] <= time_ms and not self._fire(time_ms):
                    return done
                if len(flying) >= most or (judged := judge(one)) is None:
                    return done
                self._source = command.offset
                self._send(judged, time_ms, "", one.key, one.headers)
            done += 1
        return done

    def _fire(self, time_ms: int) -> bool:
        """Fire the timers due by then; False when there is no room for all of them now."""
        while self.phase is Phase.OWNING and (timer := self.folded.state.due(time_ms)) is not None:
            if len(self._flying) >= self.decider.in_flight_max:
                return False
            # A6: a timer's event takes the next number and repeats the last source offset.
            judged = self._judge.timer(timer)
            self._send(judged, timer.time_ms, timer.name, timer.name.encode(), ())
        return True

    def _send(
        self,
        judged: Judged,
        time_ms: int,
        timer: str,
        key: bytes,
        headers: Iterable[tuple[str, bytes]],
    ) -> None:
        self._seq = seq = self._seq + 1
        judged.source_offset = source = self._source
        judged.signature = signature = self._sign(seq, source)
        judged.sent_ms = self._now_ms
        self._flying.append(judged)
        self._decided[judged.code] += 1
        if timer or time_ms != self._cause_ms:
            self._cause_ms = time_ms
            self._cause = (CAUSE, Cause(time_ms, timer).pack())
            if timer:
                self._cause_ms = -1
        self._append(self._nonce, key, judged.value, [(DECISION, signature), self._cause, *headers])
