"""A derivation as a lane of the worker."""

from __future__ import annotations

from dataclasses import replace

from streams.runtime import kafka
from streams.runtime.derivation.fold import OVERHEAD_BYTES, Encode, as_projection, largest
from streams.runtime.derivation.positions import GroupPositions, to_metadata
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.target import DELIVERY_TIMEOUT_MS, TargetLog
from streams.runtime.lane.service import Lane, LaneApp, MakeAgent, Wiring
from streams.runtime.lane.span import Seat
from streams.runtime.position import Position

QUEUE_RECORDS = 200_000


class DerivationLane(Lane):
    """Feeds one derivation: reader thread → Faust channel → agent → pump thread → target topic."""

    def __init__(
        self, app: LaneApp, derivation: Derivation, wiring: Wiring, encode: Encode
    ) -> None:
        self._version = derivation.version
        settings = {
            "delivery.report.only.error": True,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "message.max.bytes": largest(derivation.target) + OVERHEAD_BYTES,
        }
        target = TargetLog(
            derivation,
            lambda: kafka.producer(wiring.kafka, **settings),
            GroupPositions(derivation, kafka.shared_admin(wiring.kafka)),
        )
        super().__init__(
            app,
            as_projection(derivation, encode),
            replace(wiring, open_sink=lambda _: target),
        )

    def _commit(self, seat: Seat, position: Position) -> None:
        """The truth, here: what the next run starts from."""
        metadata = to_metadata(position, self._version)
        self._reader.commit(seat.partition, position.next_offset, metadata)


def deriving(derivation: Derivation, wiring: Wiring, encode: Encode) -> MakeAgent:
    """Makes the lane of a derivation in an app; its sink is the target topic, not `open_sink`."""
    return lambda app: DerivationLane(app, derivation, wiring, encode)
