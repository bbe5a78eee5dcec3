"""The lease: who coordinates the task, and under which epoch (protocol section 10).

Job: read and write ``lease.json``, and judge whether its holder still lives. Invariants: a holder
that may be alive on this boot keeps the lease however late it is; every acquisition has a higher
epoch than the lease file and the journal know of, so an older holder never passes for a newer
one; a file that is empty or damaged locks nobody out. Nobody ever has to delete it by hand.

The lease alone excludes nobody: acquire, renew, release and is_current, which every commit asks
(fencing), are called under the operating system's lock of the workspace. A clock that steps may
let the lease of another host expire too early or too late; the epoch then decides, not the clock.
"""

import time
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from perdure.errors import FencedError, LeaseHeldError, StorageError, invariant
from perdure.ports import Clock, Disk, FileStat, Processes, ProcessIdentity, ProcessState

Standing = Literal["free", "released", "damaged", "ours", "dead", "stopped", "expired", "held"]
"""``free``: no file. ``released``: given back. ``damaged``: the file says nothing, so it binds
nobody. ``ours``: this process has it. ``dead``: the holder is provably gone.
``stopped``: stopped by job control, and past its expiry. ``expired``: of another host, and past
its expiry. ``held``: everything else, so nobody may take it."""

lease_bytes_max: Final = 64 << 10
"""A longer file is damaged."""

# Bounds that a lease of ours keeps by far; a file beyond them is damage that happens to parse.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]

_SIZE_CYCLE_BYTES: Final = 512


class Lease(msgspec.Struct, frozen=True):
    """The content of ``lease.json``. Times are seconds since 1970 on the holder's clock."""

    holder: str
    """The actor, ``role:id``."""
    epoch: _Count
    host: str
    boot_id: str
    pid: _Count
    started: _Seconds
    acquired_at: _Seconds
    expires_at: _Seconds
    released: bool = False

    def process(self) -> ProcessIdentity:
        """The holder as the process table knows it."""
        return ProcessIdentity(self.host, self.boot_id, self.pid, self.started)


class Acquired(NamedTuple):
    """A lease, and why its predecessor was not left in peace."""

    lease: Lease
    took_over: str | None
    """The observation, as the takeover NOTE tells it; None after a clean release."""


class LeaseFile:
    """The lease of one workspace, as one coordinator sees it."""

    __slots__ = (
        "_bound", "_clock", "_disk", "_epoch", "_own", "_path", "_processes", "_seen", "_ttl_s",
    )  # fmt: skip

    def __init__(self, disk: Disk, path: str, processes: Processes, clock: Clock) -> None:
        self._disk = disk
        self._path = path
        self._processes = processes
        self._clock = clock
        self._ttl_s = 0.0
        self._seen: FileStat | None = None
        self._own: tuple[int, str, int, float, float] | None = None
        self._bound: tuple[int, str, int, float, float] | None = None
        """Whose lease the file is; ``_own`` is the one that this object acquired."""
        self._epoch: int | None = None
        """Epoch in the file that looked like ``_seen``; None when that lease binds nobody."""

    def read(self) -> Lease | None:
        """What the file says; None when it is missing or damaged (:meth:`standing` tells which)."""
        return self._load()[1]

    def standing(self) -> tuple[Standing, Lease | None]:
        """Whether the lease may be taken now, and what the file says. Writes nothing."""
        exists, lease = self._load()
        if lease is None:
            return ("damaged" if exists else "free"), None
        return self._judge(lease)[0], lease

    def check_free(self) -> None:
        """LeaseHeldError while a coordinator may live, also one of this process. Writes nothing.

        For a command that appends without a lease of its own. One look at the file's stat while
        nobody coordinates.
        """
        seen = self._disk.stat(self._path)
        if seen == self._seen and self._epoch is None:
            return
        lease = self._load()[1]
        self._remember(seen, lease)
        if lease is not None:
            standing, process_state = self._judge(lease)
            if standing in {"held", "ours"}:
                raise self._held(lease, process_state)

    def acquire(self, holder: str, ttl_s: float, epoch_floor: int) -> Acquired:
        """Take the lease for this process; durable on return.

        ``epoch_floor`` is the highest epoch in the journal. LeaseHeldError when a holder may be
        alive. Another object of this process is superseded and finds itself fenced. A crash after
        the write leaves a lease whose process is gone, which the next one takes over.
        """
        exists, old = self._load()
        took_over = None
        if old is not None:
            standing, process_state = self._judge(old)
            if standing == "held":
                raise self._held(old, process_state)
            if standing != "released":
                took_over = self._observation(standing, old)
        elif exists:
            took_over = "the lease file was empty or damaged, so it bound nobody"
        me = self._processes.me()
        now = self._clock.now()
        self._ttl_s = ttl_s
        lease = Lease(
            holder=holder,
            epoch=max(old.epoch if old else 0, epoch_floor) + 1,
            host=me.host,
            boot_id=me.boot_id,
            pid=me.pid,
            started=me.started,
            acquired_at=now,
            expires_at=now + ttl_s,
        )
        self._own = _identity(lease)
        self._write(lease, durable=True)
        return Acquired(lease, took_over)

    def renew(self, lease: Lease) -> Lease:
        """Let it expire one time-to-live from now, as acquired. FencedError when it is not ours.

        Not durable: a power cut ends the process that it is about.
        """
        invariant(self._ttl_s > 0, "a lease was renewed by an object that did not acquire it")
        if not self.is_current(lease.epoch):
            raise self.fenced(lease.epoch)
        renewed = msgspec.structs.replace(lease, expires_at=self._clock.now() + self._ttl_s)
        self._write(renewed, durable=False)
        return renewed

    def release(self, lease: Lease) -> None:
        """Give it back, so that the next acquisition is no takeover; harmless when it is not ours.

        Not durable: lost in a power cut, it is the lease of another boot. Where it cannot be
        written, as on a full disk, the file is removed: its process may live long, and the
        journal has every epoch that anything was committed under.
        """
        if not self.is_current(lease.epoch):
            return
        try:
            self._write(msgspec.structs.replace(lease, released=True), durable=False)
        except StorageError:
            self._disk.unlink(self._path, durable=False)
            self._remember(None, None)

    def is_current(self, epoch: int) -> bool:
        """Whether the file still gives this epoch to its holder: one look at its stat.

        False when it is missing, damaged or released. The file is read again only when it looks
        different, and one of another epoch always does (see ``_encode``).
        """
        seen = self._disk.stat(self._path)
        if seen is None or seen != self._seen:
            self._remember(seen, self._load()[1])
        return self._epoch == epoch and self._bound == self._own

    def fenced(self, epoch: int) -> FencedError:
        """The error for a writer whose epoch is over; names who has the lease now."""
        lease = self.read()
        now = "nobody has the lease" if lease is None or lease.released else f"now {_who(lease)}"
        return FencedError(
            f"epoch {epoch} is over: {now}.",
            fix="Open the workspace again; what was committed is kept.",
        )

    def _load(self) -> tuple[bool, Lease | None]:
        """Whether there is a file, and the lease in it."""
        if self._disk.stat(self._path) is None:
            return False, None
        raw = self._disk.read(self._path, length=lease_bytes_max + 1)
        if len(raw) > lease_bytes_max:
            return True, None
        try:
            return True, msgspec.json.decode(raw, type=Lease)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return True, None

    def _judge(self, lease: Lease) -> tuple[Standing, ProcessState]:
        if lease.released:
            return "released", "unknown"
        process = lease.process()
        if process == self._processes.me():
            return "ours", "alive"
        state = self._processes.state(process)
        if state == "gone":
            return "dead", state
        if state != "alive" and self._clock.now() >= lease.expires_at:
            return ("stopped" if state == "stopped" else "expired"), state
        return "held", state

    def _observation(self, standing: Standing, old: Lease) -> str:
        """Who had the lease, and what proves that it is over."""
        if standing == "ours":
            why = "it belongs to this very process, where a newer object takes its place"
        elif standing == "stopped":
            why = f"its process is stopped, and it expired at {_utc(old.expires_at)}"
        elif standing == "expired":
            why = f"it is of another host, and expired at {_utc(old.expires_at)}"
        elif old.boot_id != self._processes.me().boot_id:
            why = "its machine has been restarted since"
        else:
            why = "no process of that pid and start time runs any more"
        return f"the lease of {_who(old)} was taken over: {why}"

    def _held(self, lease: Lease, state: ProcessState) -> LeaseHeldError:
        until = _utc(lease.expires_at)
        seen = {
            "stopped": f"that process is stopped and keeps it until {until}",
            "unknown": f"that process cannot be seen from here and keeps it until {until}",
        }.get(state, "that process is alive")
        return LeaseHeldError(
            f"the lease is held by {_who(lease)}; {seen}.",
            fix=f"Wait until it ends, or stop process {lease.pid} on {lease.host}, then run this "
            "again. Commands that only write a message need not wait: they leave it in "
            "steering/spool/ for the holder.",
        )

    def _write(self, lease: Lease, *, durable: bool) -> None:
        self._disk.replace(self._path, _encode(lease), durable=durable)
        self._remember(self._disk.stat(self._path), lease)

    def _remember(self, seen: FileStat | None, lease: Lease | None) -> None:
        self._seen = seen
        self._epoch = None if lease is None or lease.released else lease.epoch
        self._bound = None if lease is None else _identity(lease)


def _identity(lease: Lease) -> tuple[int, str, int, float, float]:
    """What tells one acquisition from every other, also when epochs were lost with the file."""
    return (lease.epoch, lease.boot_id, lease.pid, lease.started, lease.acquired_at)


def _encode(lease: Lease) -> bytes:
    """The file's bytes, padded with blanks so that the size tells the epoch (modulo 512).

    Two replacements within one tick of the file system's clock can end with the inode, the time
    and, by chance, the length of the first; the size then still gives a new epoch away.
    """
    text = msgspec.json.encode(lease)
    return text + b" " * ((lease.epoch - len(text) - 1) % _SIZE_CYCLE_BYTES) + b"\n"


def _who(lease: Lease) -> str:
    since = _utc(lease.acquired_at)
    return f"{lease.holder} (pid {lease.pid} on {lease.host}, epoch {lease.epoch}, since {since})"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
