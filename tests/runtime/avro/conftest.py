"""Every test of the decoder runs twice where the column reader is built: with values as a list of
bytes, and as the columns that the reader gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Message

from streams.runtime.avro import Decoded, Decoder
from streams.runtime.native import available
from streams.runtime.native.columns import Columns

BUILT = pytest.mark.skipif(not available(), reason="the column reader is not built")
decode = Decoder.decode


def decode_columns(decoder: Decoder, values: Sequence[bytes | None]) -> Decoded:
    """`decode` of the values as the column reader has them."""
    if not values:
        return decode(decoder, values)
    messages = [
        Message(topic="t", partition=0, offset=at, value=value, timestamp=(1, 1))
        for at, value in enumerate(values)
    ]
    return decode(decoder, Columns.of(messages).values())


@pytest.fixture(autouse=True, scope="module", params=["list", pytest.param("columns", marks=BUILT)])
def _either_reader(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "columns":
            patch.setattr(Decoder, "decode", decode_columns)
        yield
