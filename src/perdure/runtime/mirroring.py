"""A journal and its mirror, as whoever may write to a workspace keeps them alike (J-2).

Job: before each commit a look at the end of both, which completes what a crash left in one of them;
on opening for work the same, or both files in full where that is not enough. Invariants: called
under the writer lock; a look costs the last commit, never the history; a short command only puts
right what a crash explains, everything else is refused and left to a recovery; nothing is written
while another coordinator lives, nor for another task.
"""

from typing import Final, NamedTuple

from perdure.core.codec import Damage, Scan, event_on, judge_tail
from perdure.core.late import LateModule
from perdure.errors import CorruptError, RefusedError
from perdure.runtime.engine import Engine
from perdure.storage.mirror import Mirror, before_bytes, more_than_one_commit, unlike

_repair: Final = LateModule("perdure.storage.mirror_repair")

Torn = tuple[Damage, bytes]


class Agreed(NamedTuple):
    """What is left of the journal's torn tail, and what was put right."""

    torn: Torn | None
    found: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


class Told(NamedTuple):
    """What an opening tells of it."""

    found: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


def agree(engine: Engine, torn: Torn | None) -> Agreed:
    """Bring both to the end of the last commit that is whole in either of them.

    ``engine`` has read the journal up to its tip; ``torn`` is what follows there. What is done is
    durable on return. A death in the middle is carried on by the next call. Raises CorruptError
    (exit 6) where more is wrong than a crash explains; then nothing was changed.
    """
    journal, mirror = engine.journal, _mirror_of(engine)
    tip, start = journal.tip, journal.commit_start
    if torn is None and mirror.agrees(tip):
        return Agreed(None)
    size = mirror.size()
    if size is None:
        if start:
            raise unlike(engine.layout, "it is gone")
        _repair.create_mirror(engine.disk, engine.layout, tip)  # a creation that was cut short
        return Agreed(
            torn, ("the journal mirror was not there yet",), ("written from the journal",)
        )
    if size < start:
        raise unlike(engine.layout, f"it ends at byte {size}, and the journal's last commit begins"
                     f" at byte {start}")  # fmt: skip
    before = max(0, start - before_bytes)
    truth = engine.disk.read(journal.path, before, tip.offset - before)
    own = engine.disk.read(mirror.path, before, size - before)
    if truth[: start - before] != own[: start - before]:
        raise unlike(engine.layout, f"they differ in front of byte {start}")
    truth, own = truth[start - before :], own[start - before :]
    if own.startswith(truth):
        return _behind_the_tip(engine, mirror, torn, own[len(truth) :])
    return _complete_mirror(engine, mirror, torn, own, truth)


def _mirror_of(engine: Engine) -> Mirror:
    mirror = engine.journal.mirror
    if not isinstance(mirror, Mirror):
        raise AssertionError("asked about the mirror of a journal that has none")
    return mirror


def _complete_mirror(
    engine: Engine, mirror: Mirror, torn: Torn | None, own: bytes, truth: bytes
) -> Agreed:
    """The mirror lacks the journal's last commit, or has a part of it."""
    seq, start = engine.journal.tip.seq, engine.journal.commit_start
    if truth.startswith(own):
        mirror.complete(truth[len(own) :])
        return Agreed(
            torn, (f"the journal mirror lacked J-{seq}",), ("completed from the journal",)
        )
    if _is_commit(own) or not _torn_of(own, truth):
        raise unlike(engine.layout, f"they differ behind byte {start}")
    _set_aside(engine, start, start + len(own), "a torn commit")
    mirror.complete(truth)
    return Agreed(
        torn,
        (f"the journal mirror was torn in the last commit, before J-{seq}",),
        (f"completed from the journal; set aside as {engine.fragments[-1].path}",),
    )


def _is_commit(data: bytes) -> bool:
    """Whether bytes end like a whole commit: then they are another one, and no torn one."""
    if not data.endswith(b"\n"):
        return False
    events = [event_on(line) for line in data.split(b"\n") if line.strip()]
    return bool(events) and None not in events


def _torn_of(own: bytes, truth: bytes) -> bool:
    """Whether every intact line among the bytes is one of that commit."""
    lines = set(truth.split(b"\n"))
    return all(
        event_on(line) is None or line.strip(b"\0 \r\t") in lines for line in own.split(b"\n")
    )


def _behind_the_tip(engine: Engine, mirror: Mirror, torn: Torn | None, extra: bytes) -> Agreed:
    """The mirror has the journal's last commit; perhaps it has the next one too."""
    journal, tip = engine.journal, engine.journal.tip
    if not extra:
        return Agreed(torn)
    if more_than_one_commit(tip, extra):
        raise unlike(engine.layout, f"it goes on behind J-{tip.seq}, where the journal ends")
    scan = Scan(tip)
    tail = torn[1] if torn is not None else b""
    if any(True for _ in scan.commits([extra])):
        if torn is not None and not extra.startswith(tail):
            engine.set_aside(*torn)
        elif torn is not None:
            journal.cut()
        journal.complete(extra)
        engine.refresh()
        return Agreed(
            None,
            (f"the journal lacked J-{engine.journal.tip.seq}, which its mirror has whole",),
            ("completed from the mirror",),
        )
    if not judge_tail(extra, tip):
        raise unlike(engine.layout, f"it is damaged behind J-{tip.seq}")
    if tail.startswith(extra):
        engine.disk.truncate(mirror.path, tip.offset)
        return Agreed(torn, (f"a torn tail in the journal mirror behind J-{tip.seq}",), ("cut",))
    _set_aside(engine, tip.offset, tip.offset + len(extra), "a torn commit")
    return Agreed(
        torn,
        (f"a torn tail in the journal mirror behind J-{tip.seq}",),
        (f"set aside as {engine.fragments[-1].path}",),
    )


def _set_aside(engine: Engine, start: int, end: int, why: str) -> None:
    """Keep bytes of the mirror that are nowhere else; the next commit registers the copy."""
    _mirror_of(engine).close()
    engine.fragments.append(
        _repair.set_aside(engine.disk, engine.layout, engine.layout.mirror, (start, end), why)
    )
    engine.disk.truncate(engine.layout.mirror, start)


# Opening for work


def mend(engine: Engine, torn: Damage | None, task_id: str | None, *, in_full: bool) -> Told:
    """Put both right, for an opening that has loaded the journal. It loads again when told so.

    ``in_full``: compare every byte, not only the ends. Raises as :func:`restore`.
    """
    if not in_full:
        try:
            data = b""
            if torn is not None:
                data = engine.disk.read(engine.layout.journal, engine.journal.tip.offset)
            agreed = agree(engine, None if torn is None else (torn, data))
        except CorruptError:
            pass  # more than a crash explains
        else:
            return Told(agreed.found, agreed.repaired)
    elif _repair.are_alike(engine.disk, engine.layout) and torn is None:
        return Told()
    return restore(engine, task_id)


def restore(engine: Engine, task_id: str | None) -> Told:
    """Put both right from each other, reading them in full. The task is known to be of tier 2.

    Bytes that differ are set aside and are registered by the next commit. Raises LeaseHeldError
    while a coordinator lives, RefusedError for another task, CorruptError where committed lines
    are whole in neither, or both verify and differ: then nothing was changed.
    """
    if engine.lease_file.standing()[0] == "held":
        engine.lease_file.check_free()
    history = _repair.read_history(engine.disk, engine.layout)
    if task_id is not None and history.task_id != task_id:
        raise RefusedError(
            f"{engine.layout.root} belongs to task {history.task_id!r}, not {task_id!r}.",
            code="task_mismatch",
            rule="D2",
            fix="Name another directory for the new task: one workspace holds one task.",
        )
    engine.journal.close()
    fixes = _repair.repair(engine.disk, engine.layout, history)
    engine.fragments += fixes.fragments
    return Told(fixes.found, fixes.repaired)
