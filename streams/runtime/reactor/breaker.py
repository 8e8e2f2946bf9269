"""Circuit breakers, one per provider: who fails again and again is left alone for a while. Pure.

Closed → open after `failures` in a row → one probe after `open_ms` → closed, or open for twice as
long. Only the probe's result moves a breaker that is not closed: calls that began before it opened
end late and tell of the past. (Nygard, *Release It!*, 2007.)
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.runtime.reactor.rules import Breaker

PROBE_WAIT_MS = 1_000
"""How long to stay away while somebody else's probe is on its way."""


@dataclass
class _Circuit:
    failures: int = 0
    open_ms: int = 0
    """How long it is open this time; 0: closed."""
    until_ms: int = 0
    probing: bool = False


class Breakers:
    """The breakers of one reactor in one process. A provider in good health takes no memory."""

    def __init__(self, rule: Breaker) -> None:
        self._rule = rule
        self._circuits: dict[str, _Circuit] = {}

    def wait_ms(self, provider: str, now_ms: int) -> int:
        """How long no call may go to the provider; 0: one may."""
        circuit = self._circuits.get(provider)
        if circuit is None or not circuit.open_ms:
            return 0
        if circuit.probing:
            return PROBE_WAIT_MS
        # The clock may be set back: never longer than the whole time.
        return min(max(0, circuit.until_ms - now_ms), circuit.open_ms)

    def begin(self, provider: str) -> bool:
        """A call begins, `wait_ms` being 0; whether it is the probe. Its end must be told."""
        circuit = self._circuits.get(provider)
        if circuit is None or not circuit.open_ms:
            return False
        circuit.probing = True
        return True

    def succeeded(self, provider: str, *, probe: bool) -> None:
        """The provider answered."""
        circuit = self._circuits.get(provider)
        if circuit is not None and (probe or not circuit.open_ms):
            del self._circuits[provider]

    def failed(self, provider: str, now_ms: int, *, probe: bool) -> None:
        """The provider did not answer, or badly."""
        if not provider:
            return
        circuit = self._circuits.setdefault(provider, _Circuit())
        if circuit.open_ms and not probe:
            return
        circuit.failures += 1
        if probe or circuit.failures >= self._rule.failures:
            longer = min(2 * circuit.open_ms, self._rule.open_ms_max)
            circuit.open_ms = max(self._rule.open_ms, longer)
            circuit.until_ms = now_ms + circuit.open_ms
            circuit.probing = False

    def undecided(self, provider: str, *, probe: bool) -> None:
        """The call ended and says nothing of the provider."""
        if probe and provider in self._circuits:
            self._circuits[provider].probing = False

    @property
    def open(self) -> int:
        """How many providers are not called, or only probed."""
        return sum(bool(circuit.open_ms) for circuit in self._circuits.values())
