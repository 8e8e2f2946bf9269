"""A server for tests of the launcher: answers 200 to everything, or misbehaves as told.

Usage: `fake_server.py PORT DATA MODE`, with MODE one of
`good`; `dies` (prints 30 lines and ends); `deaf` (never listens);
`stubborn` (ignores SIGTERM and has a child that does so too).
"""

import http.server
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Always200(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def main() -> None:
    port, data, mode = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    if mode == "dies":
        for n in range(30):
            print(f"line {n}", flush=True)
        sys.exit(3)
    if mode == "deaf":
        time.sleep(600)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, __file__, "0", str(data), "deaf"])
        (data / "child").write_text(str(child.pid))
    with (data / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    http.server.HTTPServer(("127.0.0.1", port), Always200).serve_forever()


if __name__ == "__main__":
    main()
