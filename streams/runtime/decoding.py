"""The decoder of a topic, by what the topic says its values are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streams.runtime.avro import Decoded, Decoder, SchemaSource
from streams.runtime.json import JsonDecoder
from streams.runtime.topic import Topic


class Decodes(Protocol):
    """What reads the values of a topic; the promise is `streams.runtime.avro.decoder`'s."""

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Every value in a frame, in `dead` or in `tombstones`, exactly once."""
        ...


def decoder(
    topic: Topic, schemas: SchemaSource, columns: Mapping[str, Sequence[str]] | None = None
) -> Decodes:
    """Reads `columns` (by record, None: all) of a topic. Raises as the decoder chosen does."""
    if topic.encoding == "json":
        return JsonDecoder(topic, columns)
    return Decoder(topic, schemas, columns)
