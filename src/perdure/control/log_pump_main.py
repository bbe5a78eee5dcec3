"""The process that stands between children and their logs, and masks secrets on the way.

Job: read what children print from pipes and append it to their logs, with what looks like a secret,
or was declared to be one, masked. Invariants: a secret that was printed in one piece is never
written, also when it comes in several reads; of one that was printed in pieces, with a pause of
``idle_s`` between them, that is not promised; everything else is written as it was printed, in
order; a child never waits for a log that cannot be written, it sees its pipe closed instead; the
process ends when its coordinator has gone and the last child has closed its pipe. Reads no file.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import time
from typing import Any, Final

from perdure.core.secrets import Masker

read_bytes: Final = 64 << 10
held_bytes_max: Final = 128 << 10
"""Of a line that does not end: more than this is not held back for the sake of a secret in it."""
overlap_bytes: Final = 8 << 10
"""What is kept of such a line, so that a secret at the cut is still whole."""
idle_s: Final = 0.25
"""A line that does not end for so long is written as far as it goes."""
_KEY_BEGINS: Final = b"-----BEGIN "
_KEY_ENDS: Final = b"-----END "


class Stream:
    """One pipe, and the log that it leads to."""

    def __init__(self, name: str, source: int, target: int) -> None:
        self.name = name
        self.source = source
        self.target = target
        self.error = ""
        self.held = bytearray()
        self.due_at = 0.0
        """When what is held is written although its line has not ended; 0: nothing is held."""

    def take(self, masker: Masker, now: float) -> bool:
        """Read what is there and write what is ready. False at the end of the pipe."""
        while True:
            try:
                data = os.read(self.source, read_bytes)
            except BlockingIOError:
                return True
            if not data:
                self.write(masker, len(self.held))
                return False
            self.held += data
            self.write(masker, self._ready(masker))
            self.due_at = now + idle_s if self.held else 0.0
            if self.error:
                return False

    def _ready(self, masker: Masker) -> int:
        """How much of what is held can be written: whole lines, and no key that has no end yet."""
        held = self.held
        ready = held.rfind(b"\n") + 1
        begins = held.rfind(_KEY_BEGINS)
        if begins >= 0 and held.find(_KEY_ENDS, begins) < 0:
            ready = min(ready, begins)
        if len(held) - ready <= held_bytes_max:
            return ready
        return masker.safe_cut(bytes(held), overlap_bytes)

    def write(self, masker: Masker, length: int) -> None:
        """Append the first ``length`` bytes of what is held, masked."""
        if not length:
            return
        data = bytes(self.held[:length])
        del self.held[:length]
        if not self.held:
            self.due_at = 0.0
        masked = masker.mask_bytes(data)[0]
        view = memoryview(masked)
        try:
            while view:
                view = view[os.write(self.target, view) :]
        except OSError as error:
            self.error = error.strerror or str(error)

    def close(self) -> None:
        """Give both descriptors back."""
        for descriptor in (self.source, self.target):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class Pump:
    """All pipes of one coordinator, and the socket that it sends them by."""

    def __init__(self, control: socket.socket) -> None:
        self._control: socket.socket | None = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._streams: dict[str, Stream] = {}
        self._errors: dict[str, str] = {}
        self._masker = Masker({})
        self._unread = b""
        self._fds: list[int] = []

    def run(self) -> None:
        """Until the coordinator has gone and every pipe is closed."""
        while self._control is not None or self._streams:
            for key, _ in self._selector.select(self._wait_s()):
                if key.fileobj is self._control:
                    self._take_orders()
                elif key.data.name in self._streams:  # not flushed to its end just now
                    self._take(key.data)
            now = time.monotonic()
            for stream in list(self._streams.values()):
                if stream.due_at and now >= stream.due_at:
                    stream.write(self._masker, len(stream.held))
                    self._close_if_broken(stream)

    def _wait_s(self) -> float | None:
        due = [stream.due_at for stream in self._streams.values() if stream.due_at]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _take(self, stream: Stream) -> None:
        if not stream.take(self._masker, time.monotonic()):
            self._drop(stream)

    def _close_if_broken(self, stream: Stream) -> None:
        if stream.error:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._selector.unregister(stream.source)
        del self._streams[stream.name]
        if stream.error:
            self._errors[stream.name] = stream.error
        stream.close()

    def _take_orders(self) -> None:
        assert self._control is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._control, read_bytes, 64)
        except OSError:
            data, fds = b"", []
        if not data:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None
            return
        self._fds += fds
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if "names" in order:
            self._masker = Masker(order["names"])
        elif "open" in order:
            source, target = self._fds[:2]
            del self._fds[:2]
            os.set_blocking(source, False)
            stream = self._streams[order["open"]] = Stream(order["open"], source, target)
            self._selector.register(source, selectors.EVENT_READ, stream)
        elif "flush" in order:
            self._flush(order["flush"], order["number"])

    def _flush(self, names: list[str], number: int) -> None:
        """Write all that these have printed so far, also lines that have not ended, and say so."""
        for name in names:
            stream = self._streams.get(name)
            if stream is None:
                continue
            open_still = stream.take(self._masker, time.monotonic())
            stream.write(self._masker, len(stream.held))
            if not open_still or stream.error:
                self._drop(stream)
        errors = {name: self._errors.pop(name) for name in names if name in self._errors}
        answer = json.dumps({"flushed": number, "errors": errors}).encode() + b"\n"
        assert self._control is not None
        with contextlib.suppress(OSError):
            self._control.sendall(answer)


def main() -> None:
    """Pump what comes through the socket that is standard input."""
    Pump(socket.socket(fileno=os.dup(sys.stdin.fileno()))).run()


if __name__ == "__main__":
    main()
