"""One thread, one clock, one seed: everything that happens in a simulation, in order.

An act may `wait`: then others act meanwhile, and it goes on when its time has come and those that
began later have ended. A process that died while it waited finds out by `Crashed`.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count

Act = Callable[[], None]
EPOCH_MS = 1_700_000_000_000
DEPTH_MAX = 60
"""Acts that wait inside each other; past it a wait is only a jump of the clock."""


class Crashed(BaseException):
    """The process that was acting is dead; nothing of it goes on."""


class World:
    """The scheduler. `faulty` is the first phase of a run; afterwards everything works."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = EPOCH_MS
        self.faulty = True
        self.faults: Counter[str] = Counter()
        """What was done to the system."""
        self.seen: Counter[str] = Counter()
        """What the system was seen to do about it."""
        self.steps = 0
        self._numbers = count()
        self._acts: list[tuple[int, int, Act]] = []
        self._depth = 0

    def later(self, ms: float, act: Act) -> None:
        """Do it so many milliseconds from now."""
        heapq.heappush(self._acts, (self.now_ms + max(0, round(ms)), next(self._numbers), act))

    def run(self, until_ms: int) -> None:
        """Let everything happen up to that time."""
        while self._acts and self._acts[0][0] <= until_ms:
            at, _, act = heapq.heappop(self._acts)
            self.now_ms = max(self.now_ms, at)
            self.steps += 1
            act()
        self.now_ms = max(self.now_ms, until_ms)

    def wait(self, ms: float) -> None:
        """Let others act for so long."""
        if self._depth >= DEPTH_MAX:
            self.now_ms += round(ms)
            return
        self._depth += 1
        try:
            self.run(self.now_ms + round(ms))
        finally:
            self._depth -= 1

    def dice(self, probability: float, fault: str = "") -> bool:
        """Whether something happens. A named fault happens in the faulty phase only, and counts."""
        if fault and not self.faulty:
            return False
        happens = self.random.random() < probability
        if happens and fault:
            self.faults[fault] += 1
        return happens

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)


class Process:
    """Something that acts again and again, can be paused, and can die and start anew."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.paused_until_ms = 0
        self._acting = False
        world.later(world.between(0, 50), self._turn)

    def start(self) -> None:
        """A new life: nothing is remembered."""

    def act(self) -> None:
        """One turn."""

    def crash(self) -> None:
        """Die now and start again somewhat later."""
        self.life += 1
        self.paused_until_ms = self.world.now_ms + round(self.world.between(50, 2_000))
        self.start()

    def pause(self, ms: float) -> None:
        """Stand still, and know nothing of it."""
        self.paused_until_ms = self.world.now_ms + round(ms)

    def wait(self, ms: float) -> None:
        """Wait in the middle of a turn; raises `Crashed` when the process died meanwhile, and
        lasts as long as a pause that began meanwhile.
        """
        life = self.life
        self.world.wait(ms)
        while life == self.life and self.paused_until_ms > self.world.now_ms:
            self.world.wait(self.paused_until_ms - self.world.now_ms)
        if life != self.life:
            raise Crashed

    def _turn(self) -> None:
        world = self.world
        world.later(world.between(1, 30), self._turn)
        if self._acting or self.paused_until_ms > world.now_ms:
            return
        self._acting = True
        try:
            self.act()
        except Crashed:
            world.seen["died in the middle of a turn"] += 1
        finally:
            self._acting = False


class Clockwork:
    """Stands for the `threading.Event` that patience waits on: waiting lets the world go on."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        self._process.wait(1_000 * (timeout or 0.001))
        return False
