"""One script of a check, run to its end or to its time limit.

Job: start a command in a process group of its own, keep the end of what it prints, and leave
nothing of that group behind, whether it ends, runs out of time, or the caller is interrupted.
Invariants: memory stays bounded however much is printed; the whole output is hashed; the exit code
is the command's own. Never reads a clock and never raises for what the command does. Its limit: a
process that makes a session of its own (``setsid``) is out of the group and is not stopped here.
"""

import contextlib
import hashlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Final, NamedTuple

from perdure.errors import invariant

output_tail_bytes_max: Final = 4_096
term_grace_s: Final = 2.0
"""From SIGTERM to SIGKILL."""

_tick_s: Final = 0.05
_piece_bytes: Final = 64 << 10
_late_pieces_max: Final = 32
"""What may still stand in the pipe when the group is gone; a process outside it could go on."""


class ScriptOutcome(NamedTuple):
    """How a script ended."""

    exit_code: int | None
    """Negative: ended by that signal. None: it could not be started."""
    timed_out: bool
    left_behind: bool
    """Processes of its group were still there after it, and have been killed."""
    output_bytes: int
    output_sha256: str
    output_tail: str
    """The last ``output_tail_bytes_max`` bytes of standard output and error together."""
    problem: str = ""
    """Why it could not be started."""


def run_script(
    command: str | Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
) -> ScriptOutcome:
    """Run it with ``stdin`` to read, or nothing; a text goes through ``/bin/sh -c``.

    It need not read any of it.
    At the limit the group gets SIGTERM, ``term_grace_s`` later SIGKILL. If this process is killed,
    the script is not: it goes on in its own session until it ends by itself.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        empty = hashlib.sha256().hexdigest()
        return ScriptOutcome(None, False, False, 0, empty, "", f"{argv[0]}: {error}")
    invariant(process.stdout is not None, "a script was started without a pipe")
    output = _Output(process.stdout)
    timed_out = False
    try:
        if process.stdin is not None:
            _feed(process.stdin, stdin)
        output.start()
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(term_grace_s)
    finally:
        # Also on the way out of an interrupt: the group would not notice that we are gone.
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
        left_behind = _signal_group(process.pid, signal.SIGKILL)
        output.finish()
    return ScriptOutcome(
        process.returncode,
        timed_out,
        left_behind,
        output.size_bytes,
        output.digest.hexdigest(),
        bytes(output.tail).decode("utf-8", "replace"),
    )


def _feed(stream: IO[bytes], data: bytes) -> None:
    """Write it beside us: a script that does not read would hold us at a full pipe."""

    def write() -> None:
        with contextlib.suppress(OSError), stream:
            rest = memoryview(data)
            while rest:
                rest = rest[stream.write(rest) :]

    threading.Thread(target=write, name="script-input", daemon=True).start()


def _signal_group(group: int, number: signal.Signals) -> bool:
    """False when nothing of the group is left (or it is not ours to signal any more)."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Output:
    """Drains the pipe, so that the script is never stopped by a full one, and keeps its end.

    A reading that waited for the end of the file would wait for every process that inherited the
    pipe, also for one that left the group; so the reader looks up from time to time.
    """

    def __init__(self, stream: IO[bytes] | None) -> None:
        self.digest = hashlib.sha256()
        self.size_bytes = 0
        self.tail = bytearray()
        self._stream = stream
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="script-output", daemon=True)

    def start(self) -> None:
        self._reader.start()

    def finish(self) -> None:
        """The group is gone: take what still stands in the pipe, then close it."""
        self._ended.set()
        if self._reader.ident is not None:
            self._reader.join()
        if self._stream is not None:
            self._stream.close()

    def _read(self) -> None:
        if self._stream is None:
            return
        descriptor = self._stream.fileno()
        late = 0
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while late <= _late_pieces_max:
                ended = self._ended.is_set()
                if selector.select(0 if ended else _tick_s):
                    piece = os.read(descriptor, _piece_bytes)
                    if not piece:
                        return
                    self._take(piece)
                    late += ended
                elif ended:
                    return

    def _take(self, piece: bytes) -> None:
        self.digest.update(piece)
        self.size_bytes += len(piece)
        self.tail += piece
        del self.tail[:-output_tail_bytes_max]
