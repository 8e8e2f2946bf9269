"""Life and death of the process: restarts, locks, passwords, deadlines."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

ENDLESS = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_data_outlives_the_process(start: Any, number: int) -> None:
    first = start().wait_ready()
    with first.client() as client:
        client.command(
            "CREATE TABLE kept (a UInt64) ENGINE = MergeTree ORDER BY a "
            "SETTINGS non_replicated_deduplication_window = 10"
        )
        once = {"insert_deduplication_token": "one"}
        client.insert("kept", [[1], [2]], column_names=["a"], settings=once)
    assert first.stop(number) == (-number if number == signal.SIGKILL else 0)
    second = start().wait_ready()
    with second.client() as client:
        client.insert("kept", [[1], [2]], column_names=["a"], settings=once)
        assert client.command("SELECT count(), sum(a) FROM kept") == ["2", "3"]


def test_running_queries_do_not_hold_up_the_end(start: Any) -> None:
    server = start().wait_ready()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len(ENDLESS)}\r\n\r\n"
        raw.sendall((head + ENDLESS).encode())
        running = "SELECT count() FROM system.processes WHERE query LIKE '%sipHash64(number)%'"
        while httpx.post(server.url, content=running).text != "2\n":
            pass
        server.process.send_signal(signal.SIGTERM)
        # 1 when the machine is so busy that the server's own deadline came first.
        assert server.process.wait(timeout=30) in {0, 1}


def test_one_process_per_directory(start: Any) -> None:
    first = start().wait_ready()
    second = start()
    assert second.process.wait(timeout=30) == 1
    assert f"is in use by process {first.process.pid}" in second.log
    assert httpx.get(first.url + "/ping").text == "Ok.\n"


def test_left_over_spool_files_are_removed(start: Any) -> None:
    first = start().wait_ready()
    first.stop()
    left_over = first.data / "spool" / "tmpabc"
    left_over.write_bytes(b"x")
    start().wait_ready()
    assert not left_over.exists()


def test_failed_queries_are_logged_once(start: Any) -> None:
    server = start().wait_ready()
    params = {"query_id": "wrong-1"}
    httpx.post(server.url, params=params, content="SELECT * FROM\nno_such_table")
    server.stop()
    lines = [line for line in server.log.splitlines() if "wrong-1" in line]
    assert len(lines) == 1
    assert "Code: 60" in lines[0]


def test_passwords(start: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret:ß\n")
    server = start("--user", "app", "--password-file", str(tmp_path / "password")).wait_ready()
    right, wrong = ("app", "s3cret:ß"), ("app", "guess")

    def status(**arguments: Any) -> tuple[int, str | None]:
        answer = httpx.post(server.url, content="SELECT 1", **arguments)
        return answer.status_code, answer.headers.get("X-ClickHouse-Exception-Code")

    def keys(user: str, password: str) -> dict[bytes, bytes]:
        return {b"X-ClickHouse-User": user.encode(), b"X-ClickHouse-Key": password.encode()}

    assert status(auth=right) == (200, None)
    assert status(headers=keys(*right)) == (200, None)
    assert status(params={"user": right[0], "password": right[1]}) == (200, None)
    assert status() == (401, "194")
    assert status(auth=wrong) == (403, "516")
    assert status(auth=("root", right[1])) == (403, "516")
    assert status(headers=keys(*wrong)) == (403, "516")
    assert status(headers={b"X-ClickHouse-User": b"app", b"X-ClickHouse-Key": b"\xff"})[0] == 403
    assert status(headers={"Authorization": "Basic !!"}) == (403, "516")
    assert status(params={"user": wrong[0], "password": wrong[1]}) == (403, "516")
    assert httpx.get(server.url + "/ping").status_code == 200
    with server.client(username=right[0], password=right[1]) as client:
        assert client.command("SELECT 1") == 1
    with pytest.raises(DatabaseError) as failure:
        server.client(username="app", password="guess")
    assert failure.value.code == 516


def test_bodies_have_a_deadline(start: Any) -> None:
    server = start("--receive-timeout", "0.2").wait_ready()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nSELECT")
        answer = raw.makefile("rb").readline()
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_waiting_has_an_end(start: Any) -> None:
    server = start("--threads", "1", "--queue-timeout", "0.2").wait_ready()
    sql = "SELECT number FROM numbers(1000000000000)"
    with httpx.stream("POST", server.url, content=sql) as answer:
        body = answer.iter_raw()
        next(body)
        waited = httpx.post(server.url, content="SELECT 1")
        assert waited.headers["X-ClickHouse-Exception-Code"] == "202"
        written = httpx.post(server.url, content="CREATE TABLE t (a UInt8) ENGINE = Memory")
        assert written.status_code == 200


def test_a_client_that_does_not_read_is_dropped(start: Any) -> None:
    server = start("--threads", "1", "--send-timeout", "0.2").wait_ready()
    sql = "SELECT number FROM numbers(1000000000000)"
    with httpx.stream("POST", server.url, content=sql) as answer:
        body = answer.iter_raw()
        next(body)
        assert httpx.post(server.url, content="SELECT 1", timeout=30).text == "1\n"
        with pytest.raises(httpx.HTTPError):
            for _ in body:
                pass


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--threads", "0"]])
def test_refused_arguments(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "infra.clickhouse", "--data", str(tmp_path), *arguments]
    assert subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 2
