"""Tells verdicts through Redis, without ever making the decider wait.

A bounded queue and a thread: what does not fit, and what Redis does not take, is dropped and
counted. That is safe (see `replies`): the sender asks later, or sends again with its key.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import redis
import structlog

from streams.runtime.decider.replies import ANSWER_TTL_S, Answer, answer_key, encode

QUEUED_MAX = 20_000
AT_ONCE_MAX = 500
PAUSE_S = 0.2
TIMEOUT_S = 2.0

log = structlog.get_logger()


class Answering(threading.Thread):
    """Publishes answers; `dropped` is told how many were given up."""

    def __init__(self, url: str, dropped: Callable[[int], None]) -> None:
        super().__init__(name="answers", daemon=True)
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )
        self._dropped = dropped
        self._queue: queue.Queue[tuple[str, Answer] | None] = queue.Queue(QUEUED_MAX)
        self._stopping = threading.Event()

    def tell(self, reply_to: str, answer: Answer) -> None:
        """Publish an answer soon; returns at once."""
        try:
            self._queue.put_nowait((reply_to, answer))
        except queue.Full:
            self._dropped(1)

    def stop(self) -> None:
        """Publish what is queued, if Redis takes it, and end."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            log.warning("answers are still queued", count=self._queue.qsize())
        self.join(2 * TIMEOUT_S)

    def run(self) -> None:
        while (batch := self._batch()) is not None:
            if not batch:
                continue
            try:
                self._publish(batch)
            except redis.RedisError as error:
                self._dropped(len(batch))
                log.warning("answers dropped", count=len(batch), error=str(error))
                self._stopping.wait(PAUSE_S)
        self._client.close()

    def _batch(self) -> list[tuple[str, Answer]] | None:
        """What is queued, at least one; None at the end."""
        batch: list[tuple[str, Answer]] = []
        try:
            one = self._queue.get(timeout=1.0)
            while one is not None:
                batch.append(one)
                if len(batch) == AT_ONCE_MAX:
                    return batch
                one = self._queue.get_nowait()
        except queue.Empty:
            return None if self._stopping.is_set() and not batch else batch
        return batch or None

    def _publish(self, batch: list[tuple[str, Answer]]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for reply_to, answer in batch:
                raw = encode(answer)
                pipe.set(answer_key(answer.correlation_id), raw, ex=ANSWER_TTL_S)
                pipe.publish(reply_to, raw)
            pipe.execute()
