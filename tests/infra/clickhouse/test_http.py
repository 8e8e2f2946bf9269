"""The protocol as bytes: routes, headers, statuses, codings, limits."""

import gzip
import json
import socket
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import lz4.frame
import pytest
from backports import zstd

ENDLESS = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"


def running(http: httpx.Client, marker: str) -> int:
    sql = f"SELECT count() FROM system.processes WHERE query LIKE '%{marker}%'"
    return int(http.post("/", content=f"{sql} AND query NOT LIKE '%system.processes%'").text)


def wait_running(http: httpx.Client, marker: str, count: int) -> None:
    while running(http, marker) != count:
        pass


@pytest.mark.parametrize("path", ["/ping", "/", "/replicas_status"])
def test_probes(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.content) == (200, b"Ok.\n")


def test_unknown_path(http: httpx.Client) -> None:
    assert http.get("/play").status_code == 404


def test_query_in_url_body_or_both(http: httpx.Client) -> None:
    assert http.get("/", params={"query": "SELECT 1"}).text == "1\n"
    assert http.post("/", content="SELECT 1").text == "1\n"
    assert http.post("/", params={"query": "SELECT 1"}, content="+ 1").text == "2\n"
    assert http.post("/query", content="SELECT 1").text == "1\n"


def test_headers(http: httpx.Client) -> None:
    answer = http.post("/", params={"query_id": "q-1"}, content="SELECT number FROM numbers(3)")
    assert answer.headers["X-ClickHouse-Query-Id"] == "q-1"
    assert answer.headers["X-ClickHouse-Format"] == "TabSeparated"
    assert answer.headers["X-ClickHouse-Server-Display-Name"]
    assert answer.headers["X-ClickHouse-Timezone"]
    summary = json.loads(answer.headers["X-ClickHouse-Summary"])
    assert (summary["read_rows"], summary["result_rows"]) == ("3", "3")
    other = http.post("/", content="SELECT 1")
    assert uuid.UUID(other.headers["X-ClickHouse-Query-Id"])


def test_sql_need_not_be_utf8(http: httpx.Client) -> None:
    assert http.post("/", content=b"SELECT hex('\xff\xfe')").text == "FFFE\n"


@pytest.mark.parametrize(
    ("params", "headers", "sql", "body"),
    [
        ({"default_format": "JSONEachRow"}, {}, "SELECT 1 AS a", b'{"a":1}\n'),
        ({}, {"X-ClickHouse-Format": "JSONEachRow"}, "SELECT 1 AS a", b'{"a":1}\n'),
        ({"default_format": "CSV"}, {}, "SELECT 1 AS a FORMAT TSVWithNames", b"a\n1\n"),
        ({"param_x": "7"}, {}, "SELECT {x:UInt8} + 1", b"8\n"),
        ({"param_s": "a\\tb"}, {}, "SELECT length({s:String})", b"3\n"),
        ({"max_block_size": "77"}, {}, "SELECT getSetting('max_block_size')", b"77\n"),
        ({"session_id": "s", "session_timeout": "9"}, {}, "SELECT 1", b"1\n"),
        ({"database": "system"}, {}, "SELECT currentDatabase()", b"system\n"),
        ({}, {"X-ClickHouse-Database": "system"}, "SELECT currentDatabase()", b"system\n"),
    ],
)
def test_parameters(
    http: httpx.Client, params: dict[str, str], headers: dict[str, str], sql: str, body: bytes
) -> None:
    answer = http.post("/", params=params, headers=headers, content=sql)
    assert (answer.status_code, answer.content) == (200, body)


@pytest.mark.parametrize(
    ("sql", "status", "code", "name"),
    [
        ("SELECT * FROM no_such_table", 404, 60, "UNKNOWN_TABLE"),
        ("SELECT * FROM nowhere.t", 404, 81, "UNKNOWN_DATABASE"),
        ("SELECT a", 404, 47, "UNKNOWN_IDENTIFIER"),
        ("SELECT 1 SETTINGS nope = 1", 404, 115, "UNKNOWN_SETTING"),
        ("SELEC 1", 400, 62, "SYNTAX_ERROR"),
        ("", 400, 62, "SYNTAX_ERROR"),
        ("SELECT toUInt8('x')", 400, 6, "CANNOT_PARSE_TEXT"),
        ("SELECT 1 FORMAT Nope", 404, 73, "UNKNOWN_FORMAT"),
        ("SELECT throwIf(1)", 500, 395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("SELECT sleep(3)", 408, 159, "TIMEOUT_EXCEEDED"),
    ],
)
def test_errors(http: httpx.Client, sql: str, status: int, code: int, name: str) -> None:
    answer = http.post("/", params={"max_execution_time": "1"}, content=sql)
    assert (answer.status_code, answer.headers["X-ClickHouse-Exception-Code"]) == (
        status,
        str(code),
    )
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")
    assert answer.text.endswith(f"({name})\n")


@pytest.mark.parametrize(
    ("params", "headers", "status"),
    [
        ({"no_such_setting": "1"}, {}, 404),
        ({"database": "nowhere"}, {}, 404),
        ({"max_threads": "many"}, {}, 400),
        ({"decompress": "1"}, {}, 501),
        ({"query_id": "two\r\nlines"}, {}, 400),
        ({"query_id": "q" * 300}, {}, 400),
        ({}, {"Content-Encoding": "compress"}, 415),
        ({}, {"Content-Encoding": "gzip"}, 400),
        ({}, {"Content-Type": "multipart/form-data; boundary=x"}, 501),
        ({}, {"Origin": "http://elsewhere.example"}, 403),
    ],
)
def test_refused_requests(
    http: httpx.Client, params: dict[str, str], headers: dict[str, str], status: int
) -> None:
    answer = http.post("/", params=params, headers=headers, content="SELECT 1")
    assert answer.status_code == status, answer.text
    assert "X-ClickHouse-Exception-Code" in answer.headers


def test_get_changes_nothing(http: httpx.Client, table: str) -> None:
    answer = http.get("/", params={"query": f"INSERT INTO {table} (id) VALUES (1)"})
    assert answer.headers["X-ClickHouse-Exception-Code"] == "164"
    assert http.post("/", content=f"SELECT count() FROM {table}").text == "0\n"


DECODE: dict[str, Any] = {
    "gzip": gzip.decompress,
    "lz4": lz4.frame.decompress,
    "zstd": zstd.decompress,
}


@pytest.mark.parametrize("coding", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("fmt", ["CSV", "JSON"])
@pytest.mark.parametrize("rows", [3, 400_000])
def test_compressed_answers(http: httpx.Client, coding: str, fmt: str, rows: int) -> None:
    sql = f"SELECT number FROM numbers({rows}) FORMAT {fmt}"
    ask = {"Accept-Encoding": coding}
    with http.stream(
        "POST", "/", params={"enable_http_compression": "1"}, headers=ask, content=sql
    ) as answer:
        assert answer.headers["Content-Encoding"] == coding
        plain = DECODE[coding](b"".join(answer.iter_raw()))
    if fmt == "CSV":
        assert plain == b"".join(b"%d\n" % number for number in range(rows))
    else:
        assert json.loads(plain)["rows"] == rows
    assert "Content-Encoding" not in http.post("/", headers=ask, content=sql).headers


def test_insert_bodies(http: httpx.Client, table: str) -> None:
    into = {"query": f"INSERT INTO {table} (id) FORMAT CSV"}
    answer = http.post("/", params=into, content=b"1\n2\n")
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    http.post("/", content=f"INSERT INTO {table} (id) FORMAT CSV\n3\n").raise_for_status()
    values = f"INSERT INTO {table} (id, name) VALUES ({{x:UInt64}}, DEFAULT), (1 + 4, 'e')"
    answer = http.post("/", params={"param_x": "4"}, content=values)
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    copy = http.post("/", content=f"INSERT INTO {table} (id) SELECT id + 5 FROM {table}")
    assert copy.status_code == 200
    rows = http.post("/", content=f"SELECT id FROM {table} ORDER BY id").text
    assert rows == "".join(f"{number}\n" for number in range(1, 11))


def test_large_values_and_large_queries(http: httpx.Client, table: str) -> None:
    rows = ", ".join(f"({number})" for number in range(200_000))
    assert len(rows) > 1 << 20
    answer = http.post("/", content=f"INSERT INTO {table} (id) VALUES {rows}")
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "200000"
    assert http.post("/", content="SELECT 1 -- " + "x" * (1 << 20)).status_code == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_a_body(http: httpx.Client, table: str, chunked: bool) -> None:
    body = b"1\n" * (17 << 20)
    pieces = (body[start : start + (1 << 20)] for start in range(0, len(body), 1 << 20))
    answer = http.post(
        "/",
        params={"query": f"INSERT INTO {table} (id) FORMAT CSV"},
        content=pieces if chunked else body,
    )
    assert answer.status_code == 413
    bomb = gzip.compress(bytes(100 << 20))
    answer = http.post("/", headers={"Content-Encoding": "gzip"}, content=bomb)
    assert answer.status_code == 413
    assert http.post("/", content=f"SELECT count() FROM {table}").text == "0\n"


def test_a_broken_stream_is_not_taken_for_complete(http: httpx.Client) -> None:
    sql = "SELECT throwIf(number = 2000000) FROM numbers(3000000) FORMAT CSV"
    body = b""
    with (
        pytest.raises(httpx.RemoteProtocolError),
        http.stream("POST", "/", content=sql) as answer,
    ):
        tag = answer.headers["X-ClickHouse-Exception-Tag"]
        for piece in answer.iter_raw():
            body += piece
    assert body.endswith(f" {tag}\r\n__exception__\r\n".encode())
    assert b"Code: 395. DB::Exception" in body[-1000:]


def test_max_execution_time(http: httpx.Client) -> None:
    answer = http.post("/", params={"max_execution_time": "0.2"}, content=ENDLESS)
    assert (answer.status_code, answer.headers["X-ClickHouse-Exception-Code"]) == (408, "159")


def test_memory_limit(http: httpx.Client) -> None:
    sql = "SELECT groupArray(number) FROM numbers(100000000)"
    answer = http.post("/", params={"max_memory_usage": "100000000"}, content=sql)
    assert answer.headers["X-ClickHouse-Exception-Code"] == "241"
    assert http.get("/ping").text == "Ok.\n"


@pytest.mark.parametrize("fmt", ["TSV", "JSON"])
def test_a_client_that_leaves_takes_its_query_along(
    http: httpx.Client, served: Any, fmt: str
) -> None:
    marker = f"leaving{fmt}"
    sql = f"{ENDLESS} AND '{marker}' != '' FORMAT {fmt}".encode()
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(sql) + sql)
        wait_running(http, marker, 1)
    wait_running(http, marker, 0)


def test_a_client_that_leaves_in_the_middle_of_a_stream(http: httpx.Client) -> None:
    sql = "SELECT number, 'halfway' FROM numbers(1000000000000)"
    with http.stream("POST", "/", content=sql) as answer:
        body = answer.iter_raw()  # dropping the iterator would close the connection
        next(body)
        wait_running(http, "halfway", 1)
    wait_running(http, "halfway", 0)


def test_half_a_body_inserts_nothing(http: httpx.Client, served: Any, table: str) -> None:
    head = f"POST /?query=INSERT+INTO+{table}+(id)+FORMAT+CSV HTTP/1.1\r\nHost: a\r\n"
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(f"{head}Content-Length: 100\r\n\r\n1\n2\n".encode())
    assert http.post("/", content=f"SELECT count() FROM {table}").text == "0\n"


def test_kill_query(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        ask = pool.submit(
            httpx.post, http.base_url, content=f"{ENDLESS} AND 'killme' != ''", timeout=60
        )
        wait_running(http, "killme", 1)
        kill = "KILL QUERY WHERE query LIKE '%killme%' AND query NOT LIKE 'KILL%'"
        http.post("/", content=kill).raise_for_status()
        assert ask.result().headers["X-ClickHouse-Exception-Code"] == "394"


def test_one_query_per_id(http: httpx.Client) -> None:
    params = {"query_id": "twin"}
    with http.stream(
        "POST", "/", params=params, content="SELECT * FROM numbers(1000000000000)"
    ) as answer:
        body = answer.iter_raw()  # dropping the iterator would close the connection
        next(body)
        twin = http.post("/", params=params, content="SELECT 1")
        assert twin.headers["X-ClickHouse-Exception-Code"] == "216"
    while http.post("/", params=params, content="SELECT 1").status_code != 200:
        pass


def test_slow_reads_leave_room_for_inserts(http: httpx.Client, table: str) -> None:
    def read() -> str:
        with httpx.Client(base_url=http.base_url, timeout=60) as own:
            sql = f"{ENDLESS} AND 'hog' != ''"
            answer = own.post("/", params={"max_threads": "1"}, content=sql)
            return answer.headers["X-ClickHouse-Exception-Code"]

    def kill() -> None:
        for _ in range(20):
            http.post("/", content="KILL QUERY WHERE query LIKE '%hog%' AND query NOT LIKE 'KILL%'")

    with ThreadPoolExecutor(6) as pool:
        reads = [pool.submit(read) for _ in range(6)]
        for number in range(20):
            sql = f"INSERT INTO {table} (id) FORMAT CSV\n{number}\n"
            assert http.post("/", content=sql).status_code == 200
        while not all(read.done() for read in reads):
            kill()
        assert {read.result() for read in reads} == {"394"}
    assert http.post("/", content=f"SELECT count() FROM {table}").text == "20\n"


def test_many_clients_at_once(http: httpx.Client, table: str) -> None:
    clients, each = 12, 10
    barrier = threading.Barrier(clients)

    def work(worker: int) -> None:
        with httpx.Client(base_url=http.base_url, timeout=60) as own:
            barrier.wait()
            for turn in range(each):
                row = f"{worker * each + turn},w{worker}"
                sql = f"INSERT INTO {table} (id, name) FORMAT CSV\n{row}\n"
                own.post("/", content=sql).raise_for_status()
                count = f"SELECT count() FROM {table} WHERE name = 'w{worker}'"
                assert own.post("/", content=count).text == f"{turn + 1}\n"

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    total = http.post("/", content=f"SELECT count(), uniq(id) FROM {table}").text
    assert total == f"{clients * each}\t{clients * each}\n"
