"""The command of a job's items: filled in, started for one item, and its end judged.

Job: make argument vector, input, variables and files for an item; read what the command printed
when it has ended, and judge it. Invariants: an item is never more than one argument and never meets
a shell that the caller did not name; output counts only from a command that ended by itself with 0
and was read whole (field case F16); an interrupted command has no outcome at all; what stands in
``.run`` of the job is gone when its item is settled.
Never: records anything, retries, or decides what runs next.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from perdure.control.confinement import Confinement
from perdure.control.executor import RunningCommand, start_command, stop_grace_s
from perdure.control.item_list import Item, ItemList
from perdure.control.item_outcome import last_line, output_bytes_max, payload_of, problem_of
from perdure.control.leftovers import Census
from perdure.control.outcome import Ended
from perdure.core.codec import compact_time, to_json
from perdure.core.lookup import near
from perdure.errors import NotFoundError, StorageError, UsageError
from perdure.jobs.place import RUN_NAME
from perdure.jobs.records import Failure, Finding
from perdure.ports import Disk
from perdure.runtime.orphans import INVOCATION_VARIABLE, PidRecord
from perdure.runtime.world import World

error_output_bytes_max: Final = 256 << 20
"""What it may print on standard error, so that a wild command does not fill the disk."""
size_looks_s: Final = 0.25
"""Between two looks at how much a running command has printed."""

RUN_PREFIX: Final = "run-"
"""Names of files in the job's ``.run`` begin so: no other file there is ours."""
room_probe_bytes: Final = 64 << 10
"""What has to fit onto the disk before a failed command is believed to have failed by itself."""

_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_FIELD_NAME: Final = re.compile(r"[^\W\d][\w.-]*\Z")
"""What is taken for the name of a field when an item has none of that name."""


class Settled(NamedTuple):
    """A command that has ended, with what that means for its item."""

    item: Item
    outcome: Finding | Failure | None
    """None: it was interrupted, which says nothing about the item."""
    ended: Ended
    attempt: int
    """From 1; after a failure, how often the item has failed."""


class ItemCommand:
    """The command for the items of one job, in one run of it.

    A text is a shell line, which finds its item in the variables and on standard input; words run
    as they stand, with ``{}`` for the key and ``{field}`` for a field that the item has. The
    directory of PERDURE_FILE is made when the line or a word names that variable; a program that
    reads it by itself makes the directory by itself, so that other jobs have none.
    """

    def __init__(
        self,
        command: str | tuple[str, ...],
        *,
        directory: str,
        cwd: str,
        environment: Mapping[str, str],
        artifact_path: Callable[[str], str],
        world: World,
        grace_s: float = stop_grace_s,
        confinement: Confinement | None = None,
    ) -> None:
        """``directory`` is the job's, ``cwd`` where the command runs; both are absolute.

        ``environment`` is what it inherits. ``grace_s``: between SIGTERM and SIGKILL.
        ``confinement``: what it is held to.
        """
        stamp = compact_time(world.clock.now())
        self.run_name: Final = f"{RUN_PREFIX}{stamp}-{world.ids.token()}"
        """Of this run; the invocations of its commands are ``NAME.1``, ``NAME.2``, ..."""
        self.census: Census | None = None
        """What spares a look at every process when a command has ended."""
        self._command = command
        words = [command] if isinstance(command, str) else command
        self._names_file = any("PERDURE_FILE" in word for word in words)
        self._directory = directory
        self._run_directory = f"{directory}/{RUN_NAME}"
        self._cwd = cwd
        self._environment = environment
        self._artifact_path = artifact_path
        self._world = world
        self._grace_s = grace_s
        self._confinement = confinement
        self._number = 0

    def require_program(self) -> None:
        """Raise NotFoundError when the program cannot be found, so that nothing can ever run.

        Looks where the child will look: in its PATH, from the directory it runs in. A program that
        is named by the item is not looked for.
        """
        if isinstance(self._command, str):
            return
        word = self._command[0] if self._command else ""
        if not word:
            raise UsageError("there is no command.", fix="Put it behind --, as in -- ./fetch {}.")
        if _PLACE.search(word):
            return
        folders = [""] if "/" in word else os.get_exec_path(dict(self._environment))
        paths = [os.path.join(self._cwd, folder, word) for folder in folders]
        files = [path for path in paths if os.path.isfile(path)]
        if any(os.access(path, os.X_OK) for path in files):
            return
        if files:
            raise NotFoundError(
                f"{files[0]} is not executable.",
                code="command_not_found",
                fix="Let this user execute it, or name the interpreter before it.",
            )
        raise NotFoundError(
            f"there is no program {word!r}{'' if '/' in word else ' in the PATH'}.",
            code="command_not_found",
            fix="Name a program that is installed, or write its path, as in ./fetch.",
        )

    def require_fields(self, items: ItemList) -> None:
        """Raise UsageError when a ``{name}`` in the command is no field of one of the items.

        A slip of the pen would else be the finding of every item. Items that are no more than
        their keys have no fields, and a brace in a command for them is a brace.
        """
        if isinstance(self._command, str) or not items.has_digests:
            return
        found = {name for word in self._command for name in _PLACE.findall(word)}
        names = sorted(name for name in found if _FIELD_NAME.match(name))
        if not names:
            return
        for item in items:
            fields = item.value if isinstance(item.value, dict) else {}
            for name in names:
                if name not in fields:
                    raise UsageError(
                        f"the command names {{{name}}}, and the item {item.key[:80]!r} in line"
                        f" {item.line} of {items.source} has no such field.",
                        code="unknown_field",
                        fix="Name a field that every item has; with a blank, as in"
                        f" {{ {name} }}, it is text.",
                        suggestions=near(name, fields),
                    )
            if items.columns:
                return  # the rows of a table have the same fields

    def announce(self) -> None:
        """Leave a record of this run, before its first command is started.

        If this process is killed, the next run finds by it whatever is still running. Not durable:
        nothing survives a loss of power anyway.
        """
        self._world.disk.make_dirs(self._run_directory)
        record = msgspec.json.encode(PidRecord(0, 0.0, self.run_name))
        path = f"{self._run_directory}/{self.run_name}.json"
        self._world.disk.replace(path, record, durable=False)

    def require_room(self) -> None:
        """Raise StorageError when the disk that holds the commands' output is full.

        Then a command that failed may have failed for that, which says nothing about its item.
        """
        path = f"{self._run_directory}/{self.run_name}.room"
        self._world.disk.replace(path, bytes(room_probe_bytes), durable=False)
        self._world.disk.unlink(path, durable=False)

    def retract(self) -> None:
        """Remove the record: nothing of this run is at work any more."""
        with contextlib.suppress(StorageError):
            path = f"{self._run_directory}/{self.run_name}.json"
            self._world.disk.unlink(path, durable=False)

    def start(self, item: Item, *, attempt: int, timeout_s: float | None) -> "RunningItem":
        """Start the command for an item; ``attempt`` counts from 1.

        A command that cannot be started is an outcome of the item, not an exception. Raises
        StorageError when its files cannot be written; then nothing is left running.
        """
        self._number += 1
        invocation = f"{self.run_name}.{self._number}"
        disk, base = self._world.disk, f"{self._run_directory}/{invocation}"
        words, is_filled = self._fill(item)
        artifact = self._artifact_path(item.key)
        if self._names_file:
            disk.make_dirs(os.path.dirname(artifact))
        input_path = "" if is_filled else f"{base}.in"
        if input_path:
            disk.replace(input_path, input_of(item), durable=False)
        command = start_command(
            words,
            cwd=self._cwd,
            environment={
                **self._environment,
                "PERDURE_JOB": self._directory,
                "PERDURE_KEY": item.key,
                "PERDURE_ATTEMPT": str(attempt),
                "PERDURE_FILE": artifact,
                INVOCATION_VARIABLE: invocation,
            },
            log_path=f"{base}.out",
            error_path=f"{base}.err",
            input_path=input_path,
            record_path=f"{base}.json",
            wall_s=timeout_s,
            clock=self._world.clock,
            disk=disk,
            grace_s=self._grace_s,
            census=self.census,
            confinement=self._confinement,
        )
        return RunningItem(item, attempt, command, base=base, artifact=artifact, world=self._world)

    def _fill(self, item: Item) -> tuple[str | tuple[str, ...], bool]:
        """The command for an item, and whether the item stands in it anywhere."""
        if isinstance(self._command, str):
            return self._command, False
        fields = item.value if isinstance(item.value, dict) else {}
        filled = 0

        def put(place: re.Match[str]) -> str:
            nonlocal filled
            name = place[1]
            if name and name not in fields:
                return place[0]
            filled += 1
            return _text_of(fields[name]) if name else item.key

        words = tuple(_PLACE.sub(put, word) for word in self._command)
        return words, filled > 0


class RunningItem:
    """The command of one item, at work."""

    def __init__(
        self,
        item: Item,
        attempt: int,
        command: RunningCommand,
        *,
        base: str,
        artifact: str,
        world: World,
    ) -> None:
        self.item = item
        self.attempt = attempt
        self.command = command
        """For :func:`~perdure.control.executor.wait_for_commands`."""
        self._base = base
        self._artifact = artifact
        self._disk: Disk = world.disk
        self._clock = world.clock
        self._look_at = world.clock.monotonic() + size_looks_s
        self._too_much = ""

    def poll(self) -> Settled | None:
        """What became of it, or None while any of it runs. Never blocks, never raises.

        Removes its files, so it answers once. A command that prints without end is stopped.
        """
        ended = self.command.poll()
        if ended is None:
            self._watch_sizes()
            return None
        outcome = self._judge(ended)
        for ending in (".out", ".err", ".in"):
            # What stays is removed by the next run, and means nothing.
            with contextlib.suppress(StorageError):
                self._disk.unlink(self._base + ending, durable=False)
        return Settled(self.item, outcome, ended, self.attempt)

    def stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Interrupt it: SIGTERM now, SIGKILL after the grace. It then has no outcome."""
        self.command.stop(reason, grace_s=grace_s)

    def _watch_sizes(self) -> None:
        now = self._clock.monotonic()
        if now < self._look_at or self._too_much:
            return
        self._look_at = now + size_looks_s
        limits = ((".out", output_bytes_max, ""), (".err", error_output_bytes_max, " of errors"))
        for ending, bytes_max, what in limits:
            if self._size_bytes(ending) > bytes_max:
                self._too_much = f"it printed more than {bytes_max:,} bytes{what}"
                self.command.stop(self._too_much)
                return

    def _size_bytes(self, ending: str) -> int:
        try:
            seen = self._disk.stat(self._base + ending)
        except StorageError:
            return 0  # looked at again soon, and in any case when it is read
        return seen.size_bytes if seen is not None else 0

    def _judge(self, ended: Ended) -> Finding | Failure | None:
        key = self.item.key
        if self._too_much and ended.how == "stopped":
            return Failure(key, self._too_much)
        if ended.how == "stopped":
            return None
        problem = problem_of(ended)
        try:
            if problem:
                last = last_line(self._disk, f"{self._base}.err")
                return Failure(key, f"{problem}: {last}" if last else problem)
            data = self._disk.read(f"{self._base}.out", 0, output_bytes_max + 1)
            payload = payload_of(data)
            self._settle_file()
            return Finding(key, payload, self.item.digest)
        except StorageError as error:
            return Failure(key, problem or f"its output cannot be kept: {error.message}")
        except ValueError as error:
            return Failure(key, str(error))

    def _settle_file(self) -> None:
        """Make the item's own file durable, before a finding can speak of it."""
        seen = self._disk.stat(self._artifact)
        if seen is None or seen.kind != "file":
            return
        self._disk.sync_file(self._artifact)
        folder = os.path.dirname(self._artifact)
        for path in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
            self._disk.sync_dir(path)


def input_of(item: Item) -> bytes:
    """What a command without placeholders reads: the text or the compact JSON, and a line feed."""
    data = item.key.encode() if item.value is None else to_json(item.value)
    return data + b"\n"


def _text_of(value: Any) -> str:
    """A field as an argument: a text as it stands, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()
