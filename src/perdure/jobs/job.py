"""``CheckpointedJob``: many items, each exactly once, for a program that works through them.

Job: the public calls. Invariants: a call that returns has made durable what it says; every refusal
is a HaltError and leaves the job as it was; what was recorded is never lost by closing late or not
at all. It knows nothing of how items are fetched or processed.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from perdure.errors import UsageError
from perdure.jobs.lines import item_hash
from perdure.jobs.mapping import MapReport, map_items
from perdure.jobs.opening import open_job
from perdure.jobs.progress import OnProgress
from perdure.jobs.records import ErrorEntry, Failure, Finding, Notice, attempts_default
from perdure.jobs.side_files import artifact_name
from perdure.runtime.world import World, real_world


class CheckpointedJob:
    """One job in one directory, for as long as the object lives.

    The directory is made when it is not there. Opening takes the job for this process first, then
    reads what is done (JB-2), so that whatever a crash left is in order before the constructor
    returns; ``notices`` says what was met. A second process is refused (LeaseHeldError, JB-3); a
    second object in this process takes over, and the first one's next call is refused
    (FencedError). A process that dies without ``close`` needs no clean-up.

    After a write or a sync that failed (StorageError) the object is dead: every later recording
    call raises that error again, and only a new object, which reads the log anew, knows what became
    of the last item. Calls may come from any thread, but not from a forked process (BusyError).
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str,
        *,
        world: World | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Open the job ``name``, new or not.

        ``secrets`` names environment variables whose values are masked in whatever is recorded,
        besides those of ``PERDURE_SECRETS`` and those whose name says so (SE-1).
        Raises UsageError (no name, no directory), RefusedError (the directory holds another job,
        or something else), LeaseHeldError, StorageError.
        """
        self.directory: Final[str] = os.path.abspath(_path_of(directory))
        self.name: Final = name
        world = world or real_world()
        self._clock: Final = world.clock
        self._engine = open_job(world, self.directory, name, secrets)
        # The hook holds the engine, not this object, so dropping the object closes it.
        self._closer = weakref.finalize(self, self._engine.close)

    # Recording

    def is_done(self, key: str) -> bool:
        """Whether there is a finding for this key. Costs no more when many are done.

        Answers after ``finish`` and ``close`` too, with what was known then. Raises UsageError (a
        key that is no text, JB-4), FencedError, BusyError (in a forked process).
        """
        return self._engine.is_done(item_hash(key))

    def record_finding(
        self, key: str, payload: Mapping[str, Any] | None = None, *, item: str | None = None
    ) -> bool:
        """Record the result of an item; on return it is done and on the medium (JB-1).

        One line is written and synced before the item counts. False: the item was done before, and
        nothing is written. It leaves the error queue. ``item`` is ``lines.item_digest`` of an item
        that is more than its key. A crash in the middle leaves the whole line or, after the next
        opening, nothing of it.

        Raises UsageError (reserved key, not JSON, too long) and writes nothing then. Raises
        StorageError when the line may not be on the medium: the item is neither done nor an error
        until the job is opened again. When only the checkpoint after it failed, it is done.
        """
        return self._engine.record_finding(key, payload, item)

    def record_error(self, key: str, error: str) -> int:
        """Queue an item that failed; returns how often it has by now. Durable on return (JB-5).

        The text is cut to ``records.error_chars_max`` characters. An item that is done stays done
        and is not queued: 0. Raises UsageError, StorageError.
        """
        return self._engine.record_error(key, error)

    def record_many(self, outcomes: Sequence[Finding | Failure]) -> int:
        """Record several outcomes: one append and one sync for all findings, one for all errors.

        Keys that are done, or come a second time, are skipped. Returns how many findings were
        written. Nothing is written when one of them is refused (UsageError). A crash in the middle
        leaves any of the findings whole, and none in part. More than ``lines.group_bytes_max`` at
        once are several appends. Raises StorageError as ``record_finding`` does.
        """
        return self._engine.record_many(outcomes)

    @property
    def cursor(self) -> Any:
        """Where the listing of items stood, as last set; None at first. A fresh copy each time."""
        return self._engine.cursor

    def set_cursor(self, value: Any) -> None:
        """Remember where the listing of items stands: any JSON value.

        Durable no later than the next checkpoint, and never before what was recorded so far, so a
        crash may set it back but never ahead. Raises UsageError (not JSON, too long).
        """
        self._engine.set_cursor(value)

    # Checkpoints and the end

    def checkpoint(self) -> None:
        """Write ``state.json`` and ``SUMMARY.md`` now; durable on return. Raises StorageError.

        Never needed for safety: the log alone loses nothing.
        """
        self._engine.checkpoint()

    def finish(self) -> None:
        """Say that the job is finished, write a last checkpoint, and release the job.

        Errors may be left in the queue. A finished job may be opened again; it counts as finished
        until something new is recorded. Harmless when it was done before. Raises StorageError.
        """
        self._engine.finish()

    def close(self) -> None:
        """Write a checkpoint if something changed since the last one, and release the job.

        Harmless when it was done before. After a failed write it only releases. Raises
        StorageError when the checkpoint fails; no finding is lost by that.
        """
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Looking

    @property
    def state(self) -> dict[str, Any]:
        """The mapping of ``state.json`` as it would be written now, a fresh copy.

        Answers after ``finish`` and ``close`` too.
        """
        return self._engine.state()

    @property
    def processed(self) -> int:
        """How many items are done."""
        return len(self._engine.position.completed)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What opening met and its user should know: lines cut, set aside or unreadable (JB-7)."""
        return tuple(self._engine.position.notices)

    def masked(self, text: str) -> str:
        """The text as the job would record it: with secrets masked (SE-1). Writes nothing."""
        return self._engine.masker.mask_text(text)[0]

    @property
    def summary_path(self) -> str:
        """The only file that an agent reads to resume."""
        return os.path.join(self.directory, "SUMMARY.md")

    # The error queue

    @property
    def errors(self) -> list[ErrorEntry]:
        """Items that failed and are not done, the one that failed longest ago first."""
        return self._engine.errors()

    def retryable(self, max_attempts: int = attempts_default) -> Iterator[ErrorEntry]:
        """Queued items that failed fewer than ``max_attempts`` times, oldest failure first (JB-5).

        A snapshot: what is recorded meanwhile does not change it.
        """
        return iter([entry for entry in self.errors if entry.attempts < max_attempts])

    def reset_attempts(self, keys: Iterable[str] | None = None) -> int:
        """Let failed items be tried anew: those of ``keys``, or all. Returns how many it were.

        They stay in the queue with 0 attempts (JB-5). Writes a checkpoint; durable on return; a
        crash before that leaves the attempts as they were. Raises UsageError, StorageError.
        """
        return self._engine.reset_attempts(keys)

    def forget(self, hashes: Iterable[str]) -> int:
        """Let items be done again that ``state.json`` claims and the log cannot prove.

        ``hashes`` as ``perdure job verify`` lists them; one that has a line in the log stays done.
        Returns how many were dropped. Reads the whole log, and counts every item as done that has
        a line there; writes a checkpoint; durable on return (JB-2). Raises StorageError.
        """
        return self._engine.forget(hashes)

    def set_damage_aside(self, *, forget: Iterable[str] | None = None) -> int:
        """Move every line of the log that is no finding to ``.torn/``; returns how many it were.

        Blanks stand in their place. Opening leaves such lines alone, unless a crash explains them,
        and tells them every time: they may be put right by hand. This gives them up. Their items
        run again once ``forget`` was called too, or with ``forget``: then these hashes are
        forgotten as that method does it, by the same pass over the log. Bytes are durable in
        ``.torn/`` before they are blanked; a crash in the middle leaves the rest for the next
        call. Reads the whole log once; writes a checkpoint; durable on return. Raises StorageError.
        """
        return self._engine.set_damage_aside(forget)

    # Side files

    def artifact_path(self, key: str, suffix: str = "") -> str:
        """The path of an item's own file, the same in every run, inside ``files/``.

        Makes nothing. Raises UsageError for a suffix that is more than the end of a name.
        """
        return os.path.join(self.directory, artifact_name(key, suffix))

    def write_artifact(self, key: str, data: bytes, suffix: str = "") -> str:
        """Write an item's own file whole, over an earlier one; durable on return. Returns its path.

        Call it before ``record_finding``, so that what a finding speaks of is there. A crash leaves
        the old file or the new one. Raises UsageError (a suffix, or data that are no bytes),
        PathError where ``files/`` leads out of the job, and StorageError, after which the job
        itself may go on.
        """
        name = artifact_name(key, suffix)
        self._engine.write_artifact(name, data)
        return os.path.join(self.directory, name)

    # The loop

    def map(
        self,
        function: Callable[[Any], object],
        items: Iterable[Any],
        *,
        key: Callable[[Any], str] | None = None,
        workers: int = 1,
        max_attempts: int = attempts_default,
        processes: bool = False,
        timeout_s: float | None = None,
        retry_wait_s: float = 1.0,
        progress: bool | OnProgress | None = None,
    ) -> MapReport:
        """Work through ``items`` with ``function``, several at a time: ``mapping.map_items``."""
        return map_items(
            self,
            function,
            items,
            key=key,
            workers=workers,
            max_attempts=max_attempts,
            processes=processes,
            timeout_s=timeout_s,
            retry_wait_s=retry_wait_s,
            progress=progress,
            clock=self._clock,
        )


def _path_of(directory: object) -> str:
    """The directory as text, which any file system and any message can hold."""
    try:
        path = os.fspath(directory)  # type: ignore[call-overload]  # what is no path is refused
    except TypeError:
        raise _bad_directory(f"is of type {type(directory).__name__}, not a path") from None
    if not isinstance(path, str):
        raise _bad_directory("is given as bytes")
    if not path:
        raise _bad_directory("is an empty text")
    if "\0" in path:
        raise _bad_directory("has a zero character in it")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _bad_directory("has half a character (a lone surrogate) in it") from None
    return path


def _bad_directory(what: str) -> UsageError:
    return UsageError(
        f"the directory of the job {what}.",
        code="bad_directory",
        fix='Pass a path as text, such as "data/jobs/docs"; "." is the current directory.',
    )
