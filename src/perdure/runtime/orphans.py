"""Processes that belong to an invocation: proving it, finding them, stopping them.

Job: after a coordinator was killed, find what it left running; after a command ended, find what
the command left running (field case F13). Invariants: a process counts as ours only on proof, and
there are four: it carries the invocation in its environment, or an invocation and a node of this
workspace or of an instance below it, or a pid record names it and its start time agrees, or it is
in the session or process group of a living process of which that holds.
A signal goes through a :class:`Hold`, which is lost rather than passed on when a pid is reused.
Never: signals this process or one it descends from, or trusts a pid alone.

What cannot be found: a process that left the session and cleared its environment while its parent
was already gone. Processes of other users whose environment may not be read are left alone.
"""

import os
import selectors
import signal
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.errors import StorageError
from perdure.ports import Clock, Disk

INVOCATION_VARIABLE: Final = "PERDURE_INVOCATION"
NODE_VARIABLE: Final = "PERDURE_NODE"
WORKSPACE_VARIABLE: Final = "PERDURE_WORKSPACE"

orphan_grace_s: Final = 10.0
"""Between SIGTERM and SIGKILL."""
kill_wait_s: Final = 5.0
"""How long a process may take to vanish after SIGKILL; longer means it hangs in the kernel."""
start_tolerance_s: Final = 0.05
"""Start times are in clock ticks of 10 ms; what differs by more is another process."""
poll_interval_s: Final = 0.05
"""Only where the system has no pidfd to wait on."""
scan_rounds_max: Final = 20
"""Looks at the process table for what started during the look before."""
exec_looks_max: Final = 500
"""Looks at a process that is between two programs; some tens of milliseconds in all."""
record_bytes_max: Final = 4 << 10


class Orphan(msgspec.Struct, frozen=True):
    """A process that is proven to belong to an invocation."""

    pid: int
    name: str
    invocation: str
    started: float
    """Seconds since 1970, as the operating system reports it; with the pid, its identity."""
    node: str = ""


class PidRecord(msgspec.Struct, frozen=True):
    """What ``tmp/run/<invocation>.json`` holds while a child lives."""

    pid: int
    started: float
    invocation: str
    node: str = ""


def find_orphans(
    invocations: Mapping[str, str],
    run_dir: str,
    *,
    disk: Disk,
    running: Collection[str] = (),
    workspace: str = "",
) -> list[Orphan]:
    """Everything still running that a former coordinator of this workspace started, by pid.

    ``invocations`` maps invocation ids to nodes; the pid records in ``run_dir`` add theirs, and
    with ``workspace`` all that works for a node of that or of an instance below it.
    ``running`` names invocations of the caller's own, which are left out. Call it under the lease.
    Reads only; an unreadable record or process is skipped. This process is never among them; one
    that it descends from may be, and is then refused by :func:`stop_orphans`.
    """
    records = [r for r in _read_records(run_dir, disk) if r.invocation not in running]
    wanted = {r.invocation: r.node for r in records}
    wanted.update((k, node) for k, node in invocations.items() if k not in running)
    leaders = {r.pid: r.invocation for r in records if _is_recorded(r)}
    return scan_processes(wanted, leaders, workspace=workspace, running=running)


def stop_orphans(
    orphans: Sequence[Orphan], *, clock: Clock, grace_s: float = orphan_grace_s
) -> list[Orphan]:
    """SIGTERM each, SIGKILL after ``grace_s`` what is left; those that could not be stopped.

    Blocks until they are gone, at most ``grace_s`` plus ``kill_wait_s``. Safe against reused pids.
    Among those returned are this process and its ancestors, which are never signalled, and
    processes of users whom this one may not signal.
    """
    protected = _own_line()
    refused = [o for o in orphans if o.pid in protected]
    holds = [Hold(o) for o in orphans if o.pid not in protected]
    try:
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_wait_s)):
            for hold in holds:
                hold.send(number)
            deadline = clock.monotonic() + patience_s
            while (alive := [h for h in holds if h.is_alive()]) and (
                left_s := deadline - clock.monotonic()
            ) > 0:
                wait_for_any([h.descriptor for h in alive], timeout_s=left_s, clock=clock)
            if not alive:
                break
        return refused + [h.orphan for h in holds if h.is_alive()]
    finally:
        for hold in holds:
            hold.close()


def discard_records(run_dir: str, *, disk: Disk, keep: Collection[str] = ()) -> None:
    """Remove the pid records of former coordinators, except those of the invocations in ``keep``.

    Not durable: a record that comes back names a process that is gone, and proves nothing.
    """
    for name in disk.list_dir(run_dir):
        if name.removesuffix(".json") not in keep:
            disk.unlink(os.path.join(run_dir, name), durable=False)


def scan_processes(
    invocations: Mapping[str, str],
    leaders: Mapping[int, str],
    *,
    workspace: str = "",
    running: Collection[str] = (),
) -> list[Orphan]:
    """Living processes that carry one of ``invocations`` or are in the group of one of ``leaders``.

    An invocation ``RUN.N`` belongs to the run ``RUN``: who asks for that finds all of them.
    ``leaders`` maps pids that are proven (by a record, or because they are children not yet
    reaped) to their invocation; the leader itself is included. Zombies count as gone. For
    ``workspace`` and ``running`` see :func:`find_orphans`.
    """
    import psutil

    workspace = os.path.realpath(workspace) if workspace else ""
    seen = {0, os.getpid()}
    found = []
    for _ in range(scan_rounds_max):
        fresh = [pid for pid in psutil.pids() if pid not in seen]
        # A process that started another one and ended while we looked is only known by the other.
        if not fresh:
            break
        seen.update(fresh)
        for pid in fresh:
            try:
                process = psutil.Process(pid)
                led_by = _group_of(pid, leaders)
                environment = _environment_of(process) if led_by is None else {}
                invocation = environment.get(INVOCATION_VARIABLE, "") if led_by is None else led_by
                node = _node_of(invocation, invocations)
                if node is None and workspace and invocation not in running:
                    node = _node_below(environment, workspace)
                if (led_by is not None or node is not None) and not _is_dead(process):
                    found.append(_describe(process, invocation, node or ""))
            except (psutil.Error, OSError):
                # It ended meanwhile, or it is not ours to look into.
                continue
    return sorted(found, key=lambda orphan: orphan.pid)


def descendants(pid: int, invocation: str, node: str) -> list[Orphan]:
    """The living children of a process, and theirs, wherever they went, as of now."""
    import psutil

    found = []
    try:
        for process in psutil.Process(pid).children(recursive=True):
            try:
                if not _is_dead(process):
                    found.append(_describe(process, invocation, node))
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return found


def start_time(pid: int) -> float:
    """When a process started, in seconds since 1970; 0.0 when it is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


class Hold:
    """One process that can be asked, waited for and signalled, and never becomes another one."""

    def __init__(self, orphan: Orphan) -> None:
        import psutil

        self.orphan = orphan
        # The descriptor is taken before the identity is checked: what it names cannot change.
        self.descriptor = open_pidfd(orphan.pid)
        self._process: Any = None
        try:
            process = psutil.Process(orphan.pid)
            if (
                abs(process.create_time() - orphan.started) <= start_tolerance_s
                # A step of the system clock moves all start times; the environment stays.
                or _carried_by(process) == orphan.invocation != ""
            ):
                self._process = process
        except psutil.Error:
            pass

    def is_alive(self) -> bool:
        """Still running; a zombie is not, and neither is another process with its pid."""
        import psutil

        if self._process is None:
            return False
        try:
            return bool(self._process.is_running()) and not _is_dead(self._process)
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return True

    def name(self) -> str:
        """Its name now: a process that was found between fork and exec has taken another since."""
        import psutil

        try:
            return str(self._process.name()) if self._process is not None else self.orphan.name
        except psutil.Error:
            return self.orphan.name

    def send(self, number: signal.Signals) -> None:
        """Signal it if it still lives; being forbidden to shows as still being alive."""
        import psutil

        if self._process is None:
            return
        try:
            if self.descriptor >= 0 and hasattr(signal, "pidfd_send_signal"):
                signal.pidfd_send_signal(self.descriptor, number)
            else:
                self._process.send_signal(number)
        except (psutil.Error, OSError):
            pass

    def close(self) -> None:
        """Give the descriptor back; may be called again."""
        close_pidfd(self.descriptor)
        self.descriptor = -1


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, or -1 where there is none."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def close_pidfd(descriptor: int) -> None:
    """Close what :func:`open_pidfd` gave."""
    if descriptor >= 0:
        os.close(descriptor)


def wait_for_any(
    descriptors: Iterable[int], *, timeout_s: float, clock: Clock, also: Collection[int] = ()
) -> list[int]:
    """Wait until one of the descriptors is readable; those that are, at most after ``timeout_s``.

    A -1 among them stands for a process that can only be polled and shortens the wait.
    """
    listed = [*descriptors, *also]
    usable = [d for d in listed if d >= 0]
    if len(usable) < len(listed):
        timeout_s = min(timeout_s, poll_interval_s)
    if not usable:
        clock.sleep(max(timeout_s, 0.0))
        return []
    with selectors.DefaultSelector() as selector:
        for descriptor in set(usable):
            selector.register(descriptor, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(max(timeout_s, 0.0))]


def _read_records(run_dir: str, disk: Disk) -> list[PidRecord]:
    records = []
    for name in disk.list_dir(run_dir):
        if name.startswith(".") or not name.endswith(".json"):
            continue
        try:
            data = disk.read(os.path.join(run_dir, name), 0, record_bytes_max)
            records.append(msgspec.json.decode(data, type=PidRecord))
        except (StorageError, msgspec.MsgspecError, RecursionError):
            # Torn by a crash: it was never durable, and the environment scan does not need it.
            continue
    return records


def _is_recorded(record: PidRecord) -> bool:
    """The recorded process still exists, if only as a zombie, so that its group is its own."""
    started = start_time(record.pid) if record.pid > 1 else 0.0
    return started > 0 and abs(started - record.started) <= start_tolerance_s


def _group_of(pid: int, leaders: Mapping[int, str]) -> str | None:
    if not leaders:
        return None
    if pid in leaders:
        return leaders[pid]
    for leader in (os.getsid(pid), os.getpgid(pid)):
        if leader in leaders:
            return leaders[leader]
    return None


def _node_of(invocation: str, invocations: Mapping[str, str]) -> str | None:
    """The node of an invocation, or of the run that it is one of; None: it was not asked for."""
    for name in (invocation, invocation.rpartition(".")[0]):
        if name and name in invocations:
            return invocations[name]
    return None


def _node_below(environment: Mapping[str, str], workspace: str) -> str | None:
    """The node of the workspace, or of an instance below it, that a process works for."""
    node, place = environment.get(NODE_VARIABLE), environment.get(WORKSPACE_VARIABLE)
    if not (node and place and environment.get(INVOCATION_VARIABLE)):
        return None
    place = os.path.realpath(place)
    return node if place == workspace or place.startswith(f"{workspace}/instances/") else None


def _carried_by(process: Any) -> str:
    """The invocation in its environment, or ""; may raise as psutil does."""
    return _environment_of(process).get(INVOCATION_VARIABLE, "")


def _environment_of(process: Any) -> dict[str, str]:
    """The environment of a process, empty when it has none; may raise as psutil does.

    While a process changes into another program its environment reads as empty for a moment, and
    a leftover is often caught just then.
    """
    for _ in range(exec_looks_max):
        environment = process.environ()
        if environment or not _is_between_programs(process):
            break
        os.sched_yield()
    return dict(environment)


def _is_between_programs(process: Any) -> bool:
    """No environment and no arguments: only kernel threads (children of 2) and zombies stay so."""
    if sys.platform != "linux" or 2 in (process.pid, process.ppid()):
        return False
    return not process.cmdline() and not _is_dead(process)


def _is_dead(process: Any) -> bool:
    import psutil

    return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def _describe(process: Any, invocation: str, node: str) -> Orphan:
    return Orphan(
        pid=process.pid,
        name=process.name(),
        invocation=invocation,
        started=process.create_time(),
        node=node,
    )


def _own_line() -> frozenset[int]:
    """This process and all it descends from."""
    import psutil

    try:
        return frozenset({os.getpid(), *(p.pid for p in psutil.Process().parents())})
    except psutil.Error:
        return frozenset({os.getpid(), os.getppid()})
