"""Any sequence of commands and time against a naive model of what a recipient is owed."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from schemas.notifications import events as e
from tests.notifications.desk import HOUR, MINUTE, Desk, T, send, wants

USERS = st.sampled_from(["u", "v"])
PRIORITIES = st.sampled_from(["otp", "transactional", "marketing"])


class Model:
    """What should be, in the simplest way: lists and sets, searched from end to end."""

    def __init__(self) -> None:
        self.devices: dict[str, list[str]] = {"u": [], "v": []}
        self.out: dict[str, set[str]] = {"u": set(), "v": set()}
        self.keys: dict[tuple[str, str], str] = {}
        self.waiting: dict[str, tuple[str, str, int]] = {}
        self.sent: dict[str, set[str]] = {}
        self.dead: set[str] = set()

    def release(self, id_: str, user: str, priority: str) -> None:
        wanted = priority == "otp" or priority not in self.out[user]
        self.sent[id_] = set(self.devices[user]) if wanted else set()


class Recipients(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.model = Model()
        self.next = 0

    @rule(user=USERS, token=st.sampled_from(["a", "b", "c"]))
    def register(self, user: str, token: str) -> None:
        self.desk.ask(e.RegisterDevice(user, token, "web"))
        if token not in self.model.devices[user]:
            self.model.devices[user].append(token)

    @rule(user=USERS, token=st.sampled_from(["a", "b", "c"]))
    def prune(self, user: str, token: str) -> None:
        known = token in self.model.devices[user]
        assert self.desk.ask(e.RemoveDevice(user, token, "invalid")).known is known
        if known:
            self.model.devices[user].remove(token)

    @rule(user=USERS, out=st.sets(PRIORITIES))
    def choose(self, user: str, out: set[str]) -> None:
        opted = [e.OptOut(channel="push", category=one) for one in sorted(out)]
        self.desk.ask(wants(user, opt_outs=opted))
        self.model.out[user] = out

    @rule(
        user=USERS,
        priority=PRIORITIES,
        key=st.sampled_from(["", "k1", "k2"]),
        minutes=st.none() | st.integers(1, 90),
    )
    def send(self, user: str, priority: str, key: str, minutes: int | None) -> None:
        self.next += 1
        id_ = f"n-{self.next}"
        at = None if minutes is None else self.desk.now + minutes * MINUTE
        row = send(id_, user, priority=priority, channels=["push"], idempotency_key=key,
                   send_at=at)  # fmt: skip
        first = self.model.keys.get((user, key)) if key else None
        if first is not None:
            same = first.endswith(f":{priority}")
            if same:
                assert self.desk.ask(row).notification_id == first.split(":")[0]
            else:
                assert self.desk.refused(row) == "key_reused"
            return
        event = self.desk.ask(row)
        if key:
            self.model.keys[user, key] = f"{id_}:{priority}"
        if at is None:
            self.model.release(id_, user, priority)
        else:
            assert event.disposition == "scheduled"
            self.model.waiting[id_] = (user, priority, at)

    @rule(user=USERS, n=st.integers(1, 12))
    def cancel(self, user: str, n: int) -> None:
        row = e.CancelNotification(user, f"n-{n}")
        waiting = self.model.waiting.get(row.notification_id)
        if waiting is None or waiting[0] != user:
            assert self.desk.refused(row) == "not_pending"
        else:
            self.desk.ask(row)
            del self.model.waiting[row.notification_id]
            self.model.dead.add(row.notification_id)

    @rule(minutes=st.integers(1, 60))
    def wait(self, minutes: int) -> None:
        until = self.desk.now + minutes * MINUTE
        self.desk.pass_to(until)
        due = [(at, id_) for id_, (_, _, at) in self.model.waiting.items() if at <= until]
        for _, id_ in sorted(due):
            user, priority, _ = self.model.waiting.pop(id_)
            self.model.release(id_, user, priority)

    @invariant()
    def sent_is_what_is_owed_and_nothing_twice(self) -> None:
        found: dict[str, list[str]] = {}
        for event in self.desk.log:
            row: Any = event.row
            for one in getattr(row, "deliveries", ()):
                found.setdefault(row.notification_id, []).append(one["address"])
        owed = {id_: sorted(tokens) for id_, tokens in self.model.sent.items() if tokens}
        assert {id_: sorted(tokens) for id_, tokens in found.items()} == owed
        assert not self.model.dead & found.keys()

    @invariant()
    def state_is_the_fold_of_the_log(self) -> None:
        again = self.desk.replayed()
        assert again.tables == self.desk.state.tables
        assert again.timers == self.desk.state.timers

    def teardown(self) -> None:
        self.desk.pass_to(T + 1_000 * HOUR)
        assert not self.desk.state.timers
        assert not self.desk.state["pending"]


Recipients.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRecipients = Recipients.TestCase
