"""An INSERT the engine could not store is an error, whatever stopped it, and stores nothing."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

FORMATS = (
    "Native", "Arrow", "ArrowStream", "Avro", "JSONEachRow", "CSV", "Parquet", "RowBinary",
)  # fmt: skip
ROWS = 100_000
BLOCK_ROWS = 9_999
BLOCKS = {
    "one block": {},
    "many blocks": dict.fromkeys(("max_block_size", "max_insert_block_size"), str(BLOCK_ROWS))
    | dict.fromkeys(("min_insert_block_size_rows", "min_insert_block_size_bytes"), "0"),
}


def run(http: httpx.Client, sql: str, **settings: str) -> str:
    answer = http.post("/", params=settings, content=sql)
    assert answer.status_code == 200, answer.text
    return answer.text.strip()


def encoded(http: httpx.Client, fmt: str, id_: str, rows: int) -> bytes:
    """`rows` rows with one column, `id`, made by the engine itself."""
    sql = f"SELECT CAST({id_} AS Int64) AS id FROM numbers({rows}) FORMAT {fmt}"
    return http.post("/", content=sql).raise_for_status().content


def insert(
    http: httpx.Client, table: str, body: bytes, fmt: str = "CSV", **settings: str
) -> tuple[int, str | None]:
    params = {"query": f"INSERT INTO {table} (id) FORMAT {fmt}", **settings}
    answer = http.post("/", params=params, content=body)
    return answer.status_code, answer.headers.get("X-ClickHouse-Exception-Code")


def count(http: httpx.Client, table: str) -> int:
    return int(run(http, f"SELECT count() FROM {table}"))


@pytest.fixture
def scratch(http: httpx.Client) -> Iterator[str]:
    """A database of one's own."""
    run(http, "CREATE DATABASE scratch")
    yield "scratch"
    run(http, "DROP DATABASE scratch SYNC")


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_that_breaks_a_constraint(
    http: httpx.Client, scratch: str, fmt: str, blocks: str
) -> None:
    table = f"{scratch}.t"
    run(
        http,
        f"CREATE TABLE {table} (id Int64, CONSTRAINT small CHECK id < {ROWS}) "
        "ENGINE = MergeTree ORDER BY id",
    )
    last_is_wrong = encoded(http, fmt, f"number + (number = {ROWS - 1})", ROWS)
    assert insert(http, table, last_is_wrong, fmt, **BLOCKS[blocks]) == (500, "469")
    stored = count(http, table)
    if blocks == "one block":
        assert stored == 0
    else:  # whole blocks from the beginning may stay
        assert stored % BLOCK_ROWS == 0
        beginning = f"SELECT count(), sum(id) FROM {table}"
        assert run(http, beginning) == f"{stored}\t{sum(range(stored))}"
    run(http, f"TRUNCATE TABLE {table}")
    good = encoded(http, fmt, "number", ROWS)
    assert insert(http, table, good, fmt, **BLOCKS[blocks]) == (200, None)
    assert run(http, f"SELECT count(), sum(id) FROM {table}") == f"{ROWS}\t{sum(range(ROWS))}"


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_materialized_view_that_throws(http: httpx.Client, scratch: str, fmt: str) -> None:
    run(http, f"CREATE TABLE {scratch}.t (id Int64) ENGINE = Null")
    run(http, f"CREATE TABLE {scratch}.kept (id Int64) ENGINE = MergeTree ORDER BY id")
    run(
        http,
        f"CREATE MATERIALIZED VIEW {scratch}.view TO {scratch}.kept AS "
        f"SELECT id FROM {scratch}.t WHERE throwIf(id = 13) = 0",
    )
    bad, good = encoded(http, fmt, "number", 20), encoded(http, fmt, "number", 5)
    assert insert(http, f"{scratch}.t", bad, fmt) == (500, "395")
    assert count(http, f"{scratch}.kept") == 0
    assert insert(http, f"{scratch}.t", good, fmt) == (200, None)
    assert count(http, f"{scratch}.kept") == 5


@pytest.mark.parametrize("blocks", BLOCKS)
def test_the_same_token_completes_a_failed_insert(
    http: httpx.Client, scratch: str, blocks: str
) -> None:
    table = f"{scratch}.t"
    run(
        http,
        f"CREATE TABLE {table} (id Int64, CONSTRAINT small CHECK id < {ROWS}) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 100",
    )
    settings = {"insert_deduplication_token": "t/0/1-2", **BLOCKS[blocks]}
    bad = encoded(http, "Avro", f"number + (number = {ROWS - 1})", ROWS)
    good = encoded(http, "Avro", "number", ROWS)
    assert insert(http, table, bad, "Avro", **settings) == (500, "469")
    assert (count(http, table) > 0) == (blocks == "many blocks")
    for _ in range(2):
        assert insert(http, table, good, "Avro", **settings) == (200, None)
        assert run(http, f"SELECT count(), sum(id) FROM {table}") == f"{ROWS}\t{sum(range(ROWS))}"


def test_too_many_parts(http: httpx.Client, scratch: str) -> None:
    table = f"{scratch}.t"
    run(
        http,
        f"CREATE TABLE {table} (id Int64) ENGINE = MergeTree ORDER BY id "
        "SETTINGS parts_to_throw_insert = 1, parts_to_delay_insert = 1, max_delay_to_insert = 0",
    )
    run(http, f"SYSTEM STOP MERGES {table}")
    assert insert(http, table, b"1\n") == (200, None)
    assert insert(http, table, b"2\n") == (500, "252")
    assert count(http, table) == 1
    run(http, f"ALTER TABLE {table} MODIFY SETTING parts_to_throw_insert = 100")
    assert insert(http, table, b"2\n") == (200, None)
    assert count(http, table) == 2


@pytest.mark.parametrize("readonly", ["1", "2"])
def test_read_only(http: httpx.Client, table: str, readonly: str) -> None:
    assert insert(http, table, b"1\n", readonly=readonly) == (500, "164")
    assert count(http, table) == 0
    assert insert(http, table, b"1\n") == (200, None)
    assert count(http, table) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO {t} (id) VALUES (1), (99)",
        "INSERT INTO {t} (id) SELECT * FROM (SELECT 1 UNION ALL SELECT 99)",
    ],
)
def test_inserts_without_separate_data(http: httpx.Client, scratch: str, sql: str) -> None:
    table = f"{scratch}.t"
    run(
        http,
        f"CREATE TABLE {table} (id Int64, CONSTRAINT small CHECK id < 10) "
        "ENGINE = MergeTree ORDER BY id",
    )
    answer = http.post("/", content=sql.format(t=table))
    assert (answer.status_code, answer.headers["X-ClickHouse-Exception-Code"]) == (500, "469")
    assert count(http, table) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine allows no mounts")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.parametrize("megabytes", [4, 12, 20])
def test_a_full_disk(small_disk: Path, start: Any, megabytes: int) -> None:
    """With 6 MiB free: no room for the part; none for the data; none for a spooled body."""
    server = start(data=small_disk / "data").wait_ready()
    with httpx.Client(base_url=server.url, timeout=60) as http:
        run(http, "CREATE TABLE t (s String) ENGINE = MergeTree ORDER BY tuple()")
        filler = small_disk / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - (6 << 20)))
        into = {"query": "INSERT INTO t FORMAT RowBinary"}
        body = (b"\x80\x80\x40" + os.urandom(1 << 20)) * megabytes
        answer = http.post("/", params=into, content=body)
        assert (answer.status_code, answer.headers["X-ClickHouse-Exception-Code"]) == (500, "243")
        assert count(http, "t") == 0
        filler.unlink()
        assert http.post("/", params=into, content=body).status_code == 200
        assert count(http, "t") == megabytes
    server.stop()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_is_cut_off(
    http: httpx.Client, served: Any, table: str, fmt: str, framing: str
) -> None:
    """Whole rows and blocks had arrived; the request had not."""
    data = encoded(http, fmt, "number", 1000)
    head = f"POST /?query=INSERT+INTO+{table}+(id)+FORMAT+{fmt} HTTP/1.1\r\nHost: a\r\n"
    if framing == "length":
        request = f"{head}Content-Length: {len(data) + 1}\r\n\r\n".encode() + data
    else:
        size = f"{head}Transfer-Encoding: chunked\r\n\r\n{len(data):x}\r\n"
        request = size.encode() + data + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(request)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.makefile("rb").readline()
    assert not answer.startswith(b"HTTP/1.1 200")
    assert count(http, table) == 0
    assert insert(http, table, data, fmt) == (200, None)
    assert count(http, table) == 1000
