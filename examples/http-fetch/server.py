"""A small HTTP service on this machine that fails as services do, but by plan.

    python server.py [--pages N] [--gone N] [--log FILE]

Prints its address (``http://127.0.0.1:PORT``) and serves until it is stopped. ``/pages.txt`` lists
the addresses of its pages. What becomes of a page depends on its number alone:

    ends with 3     500 the first time
    ends with 5     429 the first two times
    ends with 7     no answer the first time, however long one waits
    the last GONE   410, always
    the others      after some milliseconds

Each good answer carries a receipt that no other one has. ``--log`` gets a line of JSON for each
answer before it is sent: what the service believes to have delivered.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Plan:
    """Decides what becomes of each request, and remembers it."""

    def __init__(self, pages: int, gone: int, log: Path | None) -> None:
        self.pages = pages
        self.gone = gone
        self._log = log
        self._asked: Counter[int] = Counter()
        self._receipts = 0
        self._lock = threading.Lock()

    def status(self, page: int) -> int:
        """The status of the next answer for this page; 0 when there will be none."""
        with self._lock:
            self._asked[page] += 1
            times = self._asked[page]
        if page > self.pages - self.gone:
            return 410
        ill = {3: (1, 500), 5: (2, 429), 7: (1, 0)}
        until, status = ill.get(page % 10, (0, 200))
        return status if times <= until else 200

    def answer(self, page: int, status: int) -> dict[str, Any]:
        """What to send; it is in the log when this returns."""
        with self._lock:
            entry: dict[str, Any] = {"page": page, "status": status}
            if status == 200:
                self._receipts += 1
                entry["receipt"] = f"R-{self._receipts:06d}"
            if self._log:
                with self._log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(entry) + "\n")
        return entry


class Handler(BaseHTTPRequestHandler):
    """One request."""

    plan: Plan
    stopping: threading.Event

    def do_GET(self) -> None:
        """A page, or the list of them."""
        if self.path == "/pages.txt":
            numbers = range(1, self.plan.pages + 1)
            host = self.headers["Host"]
            text = "".join(f"http://{host}/page/{number}\n" for number in numbers)
            self._send(200, "text/plain", text.encode())
            return
        number = self.path.removeprefix("/page/")
        if not number.isdecimal() or not 0 < int(number) <= self.plan.pages:
            self._send(404, "text/plain", b"no such page\n")
            return
        page = int(number)
        status = self.plan.status(page)
        if status == 0:
            self.stopping.wait()
            return
        time.sleep(page % 7 / 1_000)
        entry = self.plan.answer(page, status)
        entry["text"] = f"This is page {page}. " * (1 + page % 9) if status == 200 else ""
        self._send(status, "application/json", json.dumps(entry).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # whoever asked was killed

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's)
        """Nothing: the log is the plan's."""


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A service that fails by plan.")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--gone", type=int, default=0, help="so many pages never come")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    Handler.plan = Plan(options.pages, options.gone, options.log)
    Handler.stopping = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        Handler.stopping.set()
        sys.exit(130)


if __name__ == "__main__":
    main()
