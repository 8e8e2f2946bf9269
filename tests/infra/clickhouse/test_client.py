"""What clickhouse-connect does, done against the server."""

import io
import json
from typing import Any

import clickhouse_connect
import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
WRITTEN = [(1, "a", None, [], 2), (2, "b", None, [], 4)]


def avro(rows: list[dict[str, Any]]) -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, rows)
    return out.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def rows_of(client: Client, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in client.query(f"SELECT * FROM {table} ORDER BY id").result_rows]


def test_start_up(client: Client) -> None:
    assert client.ping()
    assert client.server_version.startswith("26.")
    assert client.server_settings["max_threads"].value
    assert client.command("SELECT 40 + 2") == 42
    assert client.command("SELECT currentDatabase()") == "default"


@pytest.mark.parametrize("compress", [True, False, "gzip", "lz4", "zstd"])
def test_insert_and_query(served: Any, table: str, compress: bool | str) -> None:
    rows = [[1, "a", 1.5, ["x", "y"]], [2, "b", None, []], [3, "ß–日", 0.0, ["'\t\\"]]]
    with served.client(compress=compress) as client:
        summary = client.insert(table, rows, column_names=["id", "name", "price", "tags"])
        assert summary.written_rows == 3
        expected = [(*row, row[0] * 2) for row in rows]
        assert rows_of(client, table) == expected
        frame = client.query_df(f"SELECT id, name FROM {table} ORDER BY id")
        assert frame["name"].tolist() == ["a", "b", "ß–日"]
        arrow = client.query_arrow(f"SELECT id FROM {table} ORDER BY id")
        assert arrow.column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("fmt", "body"),
    [
        ("Avro", avro(ROWS)),
        ("JSONEachRow", "\n".join(map(json.dumps, ROWS)).encode()),
        ("CSV", b"1,a\n2,b\n"),
        ("TabSeparated", b"1\ta\n2\tb\n"),
        ("Parquet", parquet(ROWS)),
        ("Values", b"(1, 'a'), (1 + 1, lower('B'))"),
    ],
)
@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd"])
def test_raw_insert(client: Client, table: str, fmt: str, body: bytes, compression: Any) -> None:
    import gzip

    import lz4.frame
    from backports import zstd

    compress = {"gzip": gzip.compress, "lz4": lz4.frame.compress, "zstd": zstd.compress}
    data = compress[compression](body) if compression else body
    summary = client.raw_insert(table, ["id", "name"], data, fmt=fmt, compression=compression)
    assert summary.written_rows == 2
    assert rows_of(client, table) == WRITTEN


def test_insert_arrow_and_frame(client: Client, table: str) -> None:
    assert client.insert_arrow(table, pa.Table.from_pylist(ROWS)).written_rows == 2
    assert rows_of(client, table) == WRITTEN
    client.insert_df(table, pd.DataFrame({"id": [3], "name": ["c"]}))
    assert rows_of(client, table)[2:] == [(3, "c", None, [], 6)]


def test_hundred_thousand_rows_make_one_part(client: Client, table: str) -> None:
    block = pa.table({"id": np.arange(100_000, dtype=np.uint64)})
    assert client.insert_arrow(table, block).written_rows == 100_000
    assert client.raw_insert(
        table, ["id", "name"], avro([{"id": 1, "name": "a"}] * 100_000), fmt="Avro"
    )
    new_parts = f"SELECT count() FROM system.parts WHERE table = '{table}' AND level = 0"
    assert client.command(new_parts) <= 2
    assert client.command(f"SELECT count() FROM {table}") == 200_000


def test_same_token_lands_once(client: Client, table: str) -> None:
    once = {"insert_deduplication_token": "clicks/0/100-200"}
    block = pa.Table.from_pylist(ROWS)
    for _ in range(2):
        client.insert_arrow(table, block, settings=once)
    assert rows_of(client, table) == WRITTEN
    client.insert_arrow(table, block, settings={"insert_deduplication_token": "clicks/0/200-300"})
    assert client.command(f"SELECT count() FROM {table}") == 4


def test_parameters(client: Client) -> None:
    awkward = "it's\ta \\ {x} 'quoted'\n日"
    result = client.query(
        "SELECT {s:String} AS s, {n:Int64} AS n, {a:Array(String)} AS a, {m:Nullable(String)} AS m",
        parameters={"s": awkward, "n": -(2**60), "a": ["a'b", "c"], "m": None},
    )
    assert result.result_rows == [(awkward, -(2**60), ["a'b", "c"], None)]


def test_settings_are_of_one_query_only(client: Client) -> None:
    asked = "SELECT getSetting('max_block_size')"
    assert client.command(asked, settings={"max_block_size": 1234}) == 1234
    assert client.command(asked) != 1234


def test_database(client: Client, served: Any) -> None:
    client.command("CREATE DATABASE other")
    with served.client(database="other") as other:
        other.command("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
        other.insert("t", [[1]], column_names=["a"])
        assert other.command("SELECT currentDatabase(), count() FROM t") == ["other", "1"]
    client.command("DROP DATABASE other SYNC")


def test_exchange_tables(client: Client, table: str) -> None:
    client.command(f"CREATE TABLE {table}_next AS {table}")
    client.insert(f"{table}_next", [[7]], column_names=["id"])
    client.command(f"EXCHANGE TABLES {table} AND {table}_next")
    assert client.command(f"SELECT id FROM {table}") == 7
    client.command(f"DROP TABLE {table}_next SYNC")


def test_large_results_stream(client: Client) -> None:
    with client.query_column_block_stream("SELECT number FROM numbers(2000000)") as blocks:
        assert sum(sum(block[0]) for block in blocks) == sum(range(2_000_000))
    with client.query_arrow_stream("SELECT number AS n FROM numbers(2000000)") as batches:
        assert sum(batch.num_rows for batch in batches) == 2_000_000
    with client.query_arrow_stream("SELECT number AS n FROM numbers(9) WHERE n > 9") as batches:
        assert sum(batch.num_rows for batch in batches) == 0


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM no_such_table", 60),
        ("SELEC 1", 62),
        ("SELECT no_such_column", 47),
        ("SELECT no_such_function(1)", 46),
        ("SELECT toUInt8('x')", 6),
        ("SELECT 1 SETTINGS no_such_setting = 1", 115),
        ("SELECT 1; SELECT 2", 62),
    ],
)
def test_errors_carry_their_code(client: Client, sql: str, code: int) -> None:
    with pytest.raises(DatabaseError) as failure:
        _ = client.query(sql).result_rows
    assert failure.value.code == code
    assert f"Code: {code}. DB::Exception:" in str(failure.value)


def test_a_failed_insert_leaves_nothing(client: Client, table: str) -> None:
    with pytest.raises(DatabaseError) as failure:
        client.raw_insert(table, ["id", "name"], b"1,a\nnot a number,b\n", fmt="CSV")
    assert failure.value.code in {27, 72, 117}
    with pytest.raises(DatabaseError) as failure:
        client.raw_insert("no_such_table", ["id"], b"1\n", fmt="CSV")
    assert failure.value.code == 60
    assert client.command(f"SELECT count() FROM {table}") == 0


def test_a_failure_within_a_stream_is_raised(client: Client) -> None:
    sql = "SELECT throwIf(number = 2000000) FROM numbers(3000000)"
    with pytest.raises(StreamFailureError) as failure:
        _ = client.query(sql).result_rows
    assert failure.value.code == 395


async def test_async_client(served: Any, table: str) -> None:
    client = await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=served.port, compress=True
    )
    async with client:
        assert await client.command("SELECT 1") == 1
        summary = await client.insert(table, [[1, "a"], [2, "b"]], column_names=["id", "name"])
        assert summary.written_rows == 2
        result = await client.query(f"SELECT * FROM {table} ORDER BY id")
        assert [tuple(row) for row in result.result_rows] == WRITTEN
        await client.insert_arrow(table, pa.table({"id": [3, 4]}))
        arrow = await client.query_arrow(f"SELECT id FROM {table}")
        assert sorted(arrow.column("id").to_pylist()) == [1, 2, 3, 4]
        with pytest.raises(DatabaseError) as failure:
            await client.query("SELECT * FROM no_such_table")
        assert failure.value.code == 60
