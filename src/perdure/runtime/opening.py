"""Opening a workspace for work: create it or recover it, and become its coordinator.

Job: the order of the first steps. Invariants: the lease is taken first, under the lock; a journal
is born whole, with its first lines in one atomic replace, so an unfinished creation is simply
created again; what opening refuses (another task, another holder, damage) it refuses before it
has changed anything but the lease.
"""

from typing import Any, Final

from perdure.core.authority import check_coordinates
from perdure.core.codec import Damage, timestamp
from perdure.core.commands import StartTask
from perdure.core.decide import decide
from perdure.core.late import LateModule
from perdure.core.model import State
from perdure.core.tiers import is_mirrored
from perdure.errors import CorruptError, RefusedError
from perdure.runtime.engine import Engine
from perdure.runtime.masking import declared_names, encode_masked, mask_draft, masker_for, masker_of
from perdure.runtime.recover import Recovered, recover
from perdure.storage.journal import absent
from perdure.storage.workspace import is_workspace

_docs: Final = LateModule("perdure.runtime.docs")
_left_running: Final = LateModule("perdure.runtime.left_running")
_mirror: Final = LateModule("perdure.storage.mirror")
_mirroring: Final = LateModule("perdure.runtime.mirroring")


def open_for_work(
    engine: Engine, start: StartTask | None, task_id: str | None, *, take_over_sessions: bool
) -> Recovered:
    """Take the lease and bring the workspace to its last stable position, creating it if need be.

    ``start`` says what to create where there is nothing; None refuses that. ``task_id`` is the task
    that is expected; None takes any. ``take_over_sessions`` ends the contracts of sessions that
    still have time. On failure the lease is given back. Raises NotFoundError, RefusedError
    (another task; a role that does not coordinate, AU-1), LeaseHeldError, CorruptError,
    StorageError.
    """
    check_coordinates(engine.actor)
    if not is_workspace(engine.disk, engine.layout.root):
        missing = absent(engine.disk, engine.layout)
        if start is None or isinstance(missing, CorruptError):
            raise missing
        for draft in decide(engine.replica, start, engine.context()).drafts:
            mask_draft(masker_of(engine), draft)  # refused, as by deciding, before anything is made
        engine.disk.make_dirs(engine.layout.root)
    elif not _may_be_restored(engine):
        _check_task(engine, task_id)
    engine.lock()
    try:
        created = False
        if start is not None and not is_workspace(engine.disk, engine.layout.root):
            takeover = engine.take_lease(start.policies)
            _create(engine, start)
            created = True
            torn, mended = engine.load(), None
        else:
            torn, mended = _load(engine, task_id, in_full=start is None)
            takeover = engine.take_lease(engine.replica.state.policies)
        _check_task(engine, task_id)
        with engine.locked_by_caller():
            recovered = recover(
                engine, torn, takeover, take_over_sessions=take_over_sessions, mended=mended
            )
        if created:
            engine.project()
    except BaseException:
        engine.unlock()
        engine.close(project=False)
        raise
    engine.unlock()
    _note_stale_docs(engine)
    return _end_left_running(engine, recovered)


def _note_stale_docs(engine: Engine) -> None:
    """Documents that have changed since they were noted are to be read again before use (PL-2)."""
    if not engine.replica.state.docs or engine.replica.state.closing.closed:
        return
    try:
        _docs.note_stale(engine)
    except BaseException:
        engine.close(project=False)
        raise


def _has_mirror(engine: Engine) -> bool:
    """Whether there is a mirror of this journal, which may be unreadable or gone itself."""
    disk, layout = engine.disk, engine.layout
    return disk.stat(layout.mirror) is not None and bool(_mirror.is_due(disk, layout))


def _may_be_restored(engine: Engine) -> bool:
    """Whether reading fails, and there is a mirror that may help: looked at under the lock."""
    try:
        engine.load()
    except CorruptError:
        if not _has_mirror(engine):
            raise
        return True
    return False


def _load(engine: Engine, task_id: str | None, *, in_full: bool) -> tuple[Damage | None, Any]:
    """Load the workspace; of tier 2 with journal and mirror put right from each other first (J-2).

    Returns what follows the last commit, and what an opening tells of the mirror. A clean pair
    costs the end of both; ``in_full`` compares every byte.
    """
    try:
        torn = engine.load()
        mirrored = engine.journal.mirror is not None
    except CorruptError:
        if not _has_mirror(engine):
            raise
        told = _mirroring.restore(engine, task_id)
        return engine.load(), told
    if not mirrored:
        return torn, None
    _check_task(engine, task_id)
    told = _mirroring.mend(engine, torn, task_id, in_full=in_full)
    return (engine.load() if told.found else torn), told


def _end_left_running(engine: Engine, recovered: Recovered) -> Recovered:
    """What a dead run has left at work ends once its contracts are no longer in force (F13)."""
    disk, layout = engine.disk, engine.layout
    if disk.stat(layout.run_mark) is None and not disk.list_dir(layout.runs):
        return recovered  # without loading what looks at processes
    try:
        found: Any = _left_running.stop_left_running(engine)
    except BaseException:
        engine.close(project=False)
        raise
    return recovered._replace(stopped=found.found, left_running=found.left)


def _create(engine: Engine, start: StartTask) -> None:
    """Write a journal whose first lines are whole or absent; everything else can be rebuilt."""
    layout, disk = engine.layout, engine.disk
    drafts = decide(engine.replica, start, engine.context()).drafts
    masker = masker_for(engine.world.environment, declared_names(start.source))
    ts = timestamp(engine.world.clock.now())
    commit = encode_masked(engine, engine.journal.tip, drafts, ts=ts, masker=masker)
    for directory in (layout.artifacts, layout.contracts, layout.spool, layout.recovered):
        disk.make_dirs(directory)
    disk.replace(layout.journal, commit.data, durable=True)
    if is_mirrored(start.tier):  # an opening after a death in between writes it too
        disk.replace(layout.mirror, commit.data, durable=True)


def _check_task(engine: Engine, task_id: str | None) -> None:
    state: State = engine.replica.state
    if task_id is not None and state.created and state.task_id != task_id:
        raise RefusedError(
            f"{engine.layout.root} belongs to task {state.task_id!r}, not {task_id!r}.",
            code="task_mismatch",
            rule="D2",
            fix="Name another directory for the new task: one workspace holds one task.",
        )
