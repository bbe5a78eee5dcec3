"""A webhook on loopback that remembers what it was sent, and answers as it is told."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Webhook:
    """A server of its own for the length of a ``with`` block."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 204
        self.location = ""
        self.release = threading.Event()
        """While it is not set, requests wait for it before they are answered."""
        self.release.set()
        self.arrived = threading.Semaphore(0)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def ids(self) -> Counter[str]:
        """How often each message came."""
        return Counter(message["id"] for message in self.messages)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["kind"] == kind]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(hook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.messages.append(json.loads(body))
            hook.headers.append({name.lower(): value for name, value in self.headers.items()})
            hook.arrived.release()
            hook.release.wait(30)
            try:
                self.send_response(hook.status)
                if hook.location:
                    self.send_header("Location", hook.location)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # whoever asked was killed meanwhile

        def do_GET(self) -> None:
            hook.messages.append({"id": "GET", "kind": "GET"})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler
