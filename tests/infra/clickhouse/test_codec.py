"""Content codings: what one end writes in pieces the other reads in other pieces."""

import gzip
import zlib

import lz4.frame
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from infra.clickhouse import codec
from infra.clickhouse.errors import ServerError

CODINGS = ["gzip", "deflate", "lz4", "zstd"]
COMPRESS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstd.compress,
}


def decode(coding: str, data: bytes, piece_bytes: int) -> bytes:
    decoder = codec.decoder(coding)
    plain = b"".join(
        piece
        for start in range(0, len(data), piece_bytes)
        for piece in decoder.feed(data[start : start + piece_bytes])
    )
    decoder.finish()
    return plain


@pytest.mark.parametrize("coding", [*CODINGS, "identity"])
@given(pieces=st.lists(st.binary(max_size=300), max_size=5), piece_bytes=st.integers(1, 400))
def test_round_trip(coding: str, pieces: list[bytes], piece_bytes: int) -> None:
    encoder = codec.encoder(coding)
    encoded = b"".join([*(encoder.encode(piece) for piece in pieces), encoder.finish()])
    assert decode(coding, encoded, piece_bytes) == b"".join(pieces)


@pytest.mark.parametrize("coding", CODINGS)
@given(first=st.binary(max_size=99), second=st.binary(max_size=99), size=st.integers(1, 200))
def test_frames_may_follow_one_another(coding: str, first: bytes, second: bytes, size: int) -> None:
    encoded = COMPRESS[coding](first) + COMPRESS[coding](second)
    assert decode(coding, encoded, size) == first + second


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_comes_out_in_bounded_pieces(coding: str) -> None:
    bomb = COMPRESS[coding](bytes(20_000_000))
    sizes = [len(piece) for piece in codec.decoder(coding).feed(bomb)]
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("coding", CODINGS)
def test_cut_off_bodies_are_refused(coding: str) -> None:
    with pytest.raises(ServerError, match="cut off"):
        decode(coding, COMPRESS[coding](b"x" * 1000)[:-3], 7)


@pytest.mark.parametrize("coding", CODINGS)
def test_garbage_is_refused(coding: str) -> None:
    with pytest.raises(ServerError, match="corrupt"):
        decode(coding, b"this is not compressed at all", 100)


def test_unknown_coding() -> None:
    with pytest.raises(ServerError) as failure:
        codec.decoder("compress")
    assert failure.value.status == 415


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("gzip, deflate, zstd", "zstd"),
        ("gzip;q=1.0, lz4;q=0", "gzip"),
        ("GZIP, LZ4", "lz4"),
        ("br", None),
    ],
)
def test_negotiation(accept: str, coding: str | None) -> None:
    assert codec.negotiate(accept) == coding
