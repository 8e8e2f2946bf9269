"""Decode rates of the seven-field click: `python -m tests.runtime.avro.bench`.

`bare` is one `read_avro` of the joined values with nothing checked: the floor. `read` adds the
two guards and their checks, `decode` is the whole decoder. Best of several runs, so
that other load counts little.
"""

import io
import time
from collections.abc import Callable, Sequence

import fastavro
import polars as pl

from streams.runtime.avro import Decoder, MemorySource
from streams.runtime.avro.container import Container, varint
from streams.runtime.avro.plan import plan
from streams.runtime.avro.rows import RowReader
from tests.runtime.avro.wire import CLICK, CLICK_DTYPES, click, clicks, encode, record_type, topic

PROJECTED = ["campaign_id", "event_time", "cost_micros"]
SYNC = b"0123456789abcdef"


def bare_reader(names: Sequence[str] | None) -> Callable[[Sequence[bytes]], pl.DataFrame]:
    header = {"name": "h", "type": {"type": "fixed", "name": "H", "size": 5}}
    schema = CLICK | {"fields": [header, *CLICK["fields"]]}  # type: ignore[misc]
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [], sync_marker=SYNC)
    preamble = sink.getvalue()[: sink.getvalue().index(SYNC) + len(SYNC)]
    columns = ["h", *names] if names else None

    def read(values: Sequence[bytes]) -> pl.DataFrame:
        body = b"".join(values)
        block = b"".join((preamble, varint(len(values)), varint(len(body)), body, SYNC))
        return pl.read_avro(io.BytesIO(block), columns=columns)

    return read


def rate(work: Callable[[Sequence[bytes]], object], values: Sequence[bytes]) -> float:
    """Rows per second, best of several runs."""
    times = []
    for _ in range(max(15, 200_000 // len(values) // 2)):
        start = time.perf_counter()
        work(values)
        times.append(time.perf_counter() - start)
    return len(values) / min(times)


def report(name: str, values: Sequence[bytes], names: list[str] | None) -> None:
    record = record_type(CLICK, CLICK_DTYPES)
    source = MemorySource({1: CLICK})
    writer = source.writer_schema(1)
    wanted = [i for i, f in enumerate(writer.type.fields) if not names or f.name in names]
    container = Container.of(writer.type, wanted)
    decoder = Decoder(topic(record), source, {record.fullname: names} if names else None)
    bare = rate(bare_reader(names), values)
    guarded = rate(lambda v: container.read(v, b"\x00\x00\x00\x00\x01"), values)
    whole = rate(decoder.decode, values)
    print(
        f"{name:>12} {len(values):>7,} rows   bare {bare / 1e6:5.2f} M/s   "
        f"read {guarded / 1e6:5.2f} M/s ({bare / guarded - 1:+.0%})   "
        f"decode {whole / 1e6:5.2f} M/s ({bare / whole - 1:+.0%})"
    )


def main() -> None:
    values = clicks(60_000)
    for names in (None, PROJECTED):
        for count in (500, 5_000, 20_000, 60_000):
            report("three fields" if names else "all fields", values[:count], names)
    fields = [*CLICK["fields"], {"name": "note", "type": ["null", "string"]}]  # type: ignore[misc]
    optional = CLICK | {"fields": fields}
    record = record_type(optional, CLICK_DTYPES | {"note": pl.String})
    decoder = Decoder(topic(record), MemorySource({1: optional}))
    nullable = encode(optional, *({**click(i), "note": None} for i in range(20_000)))
    print(f"one nullable field: decode {rate(decoder.decode, nullable) / 1e6:.2f} M/s at 20,000")
    by_rows = RowReader(plan(MemorySource({1: CLICK}).writer_schema(1), record, list(CLICK_DTYPES)))
    print(f"row path: {rate(by_rows.read, values[:2_000]) / 1e3:.0f} k/s")


if __name__ == "__main__":
    main()
