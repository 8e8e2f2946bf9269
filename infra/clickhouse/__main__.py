"""`python -m infra.clickhouse --data DIR --port P`."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from aiohttp import web

from infra.clickhouse.engine import DataDirectoryInUse, Engine
from infra.clickhouse.request import Credentials
from infra.clickhouse.server import Limits, Server

log = logging.getLogger("infra.clickhouse")

_SHUTDOWN_S = 4.0
_KEEPALIVE_S = 60.0
_MAX_LINE_BYTES = 1 << 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m infra.clickhouse", description="ClickHouse's HTTP interface over chDB"
    )
    parser.add_argument("--data", type=Path, required=True, help="data directory, made if missing")
    parser.add_argument("--port", type=int, default=8123, help="0 for any free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--user", default="default")
    parser.add_argument(
        "--password-file", type=Path, help="without it everyone on this host may ask"
    )
    parser.add_argument("--threads", type=int, default=4, help="readers at once, and writers")
    parser.add_argument("--max-body-bytes", type=int, default=Limits.body_bytes)
    parser.add_argument("--receive-timeout", type=float, default=Limits.receive_timeout_s)
    parser.add_argument("--send-timeout", type=float, default=Limits.send_timeout_s)
    parser.add_argument("--queue-timeout", type=float, default=60.0)
    parser.add_argument("--query-memory-bytes", type=int, default=Limits.query_memory_bytes)
    arguments = parser.parse_args()
    if arguments.threads < 1:
        parser.error("--threads must be at least 1")
    if arguments.password_file is None and not _is_loopback(arguments.host):
        parser.error("--password-file is needed to listen beyond this host")
    return arguments


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(arguments: argparse.Namespace, engine: Engine) -> None:
    password = arguments.password_file and arguments.password_file.read_text().rstrip("\r\n")
    limits = Limits(
        body_bytes=arguments.max_body_bytes,
        receive_timeout_s=arguments.receive_timeout,
        send_timeout_s=arguments.send_timeout,
        query_memory_bytes=arguments.query_memory_bytes,
    )
    server = Server(engine, Credentials(arguments.user, password), limits)
    runner = web.AppRunner(
        server.app(),
        auto_decompress=False,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=_KEEPALIVE_S,
        max_line_size=_MAX_LINE_BYTES,
        shutdown_timeout=0.5,
    )
    await runner.setup()
    await web.TCPSite(runner, arguments.host, arguments.port).start()
    log.info("ready on http://%s:%d", arguments.host, runner.addresses[0][1])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    log.info("stopping")
    _exit_anyway_after(_SHUTDOWN_S)
    await asyncio.to_thread(engine.kill_all)
    await runner.cleanup()


def _exit_anyway_after(seconds: float) -> None:
    """A statement that ignores KILL must not keep the process: data survives kill -9 too."""
    timer = threading.Timer(seconds, os._exit, args=(1,))
    timer.daemon = True
    timer.start()


def main() -> int:
    """Run until SIGTERM or SIGINT. Exit code 1 when the directory is taken, 0 on a clean stop."""
    arguments = _arguments()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        engine = Engine(
            arguments.data, threads=arguments.threads, queue_timeout_s=arguments.queue_timeout
        )
    except DataDirectoryInUse as error:
        log.error("%s", error)  # noqa: TRY400 - a message for people, not a fault of ours
        return 1
    try:
        asyncio.run(_serve(arguments, engine))
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
