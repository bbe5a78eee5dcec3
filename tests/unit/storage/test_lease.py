"""The lease: one holder, told from its predecessors by the epoch, and never a lock-out."""

import os
from collections.abc import Callable

import msgspec
import pytest
from tests.unit.fakes import FakeClock, FakeProcesses

from perdure.errors import FencedError, LeaseHeldError, StorageError
from perdure.storage import lease as lease_module
from perdure.storage.disk import RealDisk
from perdure.storage.lease import Lease, LeaseFile

HOUR_S = 3_600.0
Opener = Callable[[FakeProcesses], LeaseFile]


@pytest.fixture
def path(workspace: str) -> str:
    return f"{workspace}/lease.json"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here() -> FakeProcesses:
    return FakeProcesses(pid=100)


@pytest.fixture
def opened(path: str, clock: FakeClock) -> Opener:
    return lambda processes: LeaseFile(RealDisk(), path, processes, clock)


def write(path: str, data: bytes) -> None:
    RealDisk().replace(path, data, durable=False)


def test_first_acquisition_has_an_epoch_above_the_journal_and_is_no_takeover(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    file = opened(here)
    assert file.standing() == ("free", None)
    lease, took_over = file.acquire("coordinator:main", 60.0, epoch_floor=7)
    assert took_over is None
    assert lease == file.read()
    assert (lease.holder, lease.epoch, lease.process()) == ("coordinator:main", 8, here.me())
    assert lease.expires_at == clock.now() + 60.0
    assert file.is_current(8)
    assert not file.is_current(7)


def test_epoch_is_above_the_file_where_the_journal_is_behind(
    opened: Opener, here: FakeProcesses
) -> None:
    file = opened(here)
    file.release(file.acquire("coordinator:main", 60.0, epoch_floor=41).lease)
    assert file.acquire("coordinator:main", 60.0, epoch_floor=3).lease.epoch == 43


def test_released_lease_is_taken_without_a_takeover(opened: Opener, here: FakeProcesses) -> None:
    file = opened(here)
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    file.release(lease)
    assert file.standing()[0] == "released"
    assert not file.is_current(lease.epoch)
    assert opened(here.seen_from(200)).acquire("coordinator:other", 60.0, 0).took_over is None


def test_living_holder_refuses_a_second_process_and_is_named(
    opened: Opener, here: FakeProcesses
) -> None:
    opened(here).acquire("coordinator:main", 60.0, 0)
    with pytest.raises(LeaseHeldError) as refused:
        opened(here.seen_from(200)).acquire("coordinator:other", 60.0, 0)
    text = str(refused.value)
    for part in ("lease", "pid 100", "coordinator:main", "here", "2027-01-15T08:00:00Z", "spool"):
        assert part in text
    assert refused.value.exit_code == 5
    assert "kill " not in text


def test_living_holder_of_this_boot_never_expires_by_time(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    opened(here).acquire("coordinator:main", 60.0, 0)
    clock.advance(1_000 * HOUR_S)
    assert opened(here.seen_from(200)).standing()[0] == "held"


def test_dead_holder_is_taken_over_at_once_and_the_observation_told(
    opened: Opener, here: FakeProcesses
) -> None:
    opened(here).acquire("coordinator:main", 60.0, 0)
    other = here.seen_from(200)
    here.kill(100)
    assert opened(other).standing()[0] == "dead"
    lease, took_over = opened(other).acquire("coordinator:other", 60.0, 0)
    assert lease.epoch == 2
    assert took_over is not None
    for part in ("coordinator:main", "pid 100", "epoch 1", "no process of that pid"):
        assert part in took_over


def test_reused_pid_does_not_keep_the_lease(opened: Opener, here: FakeProcesses) -> None:
    opened(here).acquire("coordinator:main", 60.0, 0)
    other = here.seen_from(200)
    here.spawn(100, started=99.0)
    assert opened(other).standing()[0] == "dead"


def test_lease_of_another_boot_of_this_host_is_dead(opened: Opener, here: FakeProcesses) -> None:
    opened(here).acquire("coordinator:main", 60.0, 0)
    other = here.seen_from(200)
    other.reboot("boot-2")
    other.spawn(100)
    lease, took_over = opened(other).acquire("coordinator:other", 60.0, 0)
    assert lease.epoch == 2
    assert took_over is not None
    assert "restarted" in took_over


def test_lease_of_another_host_is_refused_until_it_expires(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    opened(FakeProcesses(pid=100, host="there")).acquire("coordinator:main", 60.0, 0)
    file = opened(here)
    clock.advance(59.9)
    with pytest.raises(LeaseHeldError, match="keeps it until 2027-01-15T08:01:00Z"):
        file.acquire("coordinator:other", 60.0, 0)
    clock.advance(0.1)
    assert file.standing()[0] == "expired"
    took_over = file.acquire("coordinator:other", 60.0, 0).took_over
    assert took_over is not None
    assert "of another host, and expired" in took_over


def test_stopped_holder_keeps_the_lease_only_until_it_expires(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    file = opened(here)
    mine = file.acquire("coordinator:main", 60.0, 0).lease
    other = here.seen_from(200)
    here.stop(100)
    with pytest.raises(LeaseHeldError, match="is stopped"):
        opened(other).acquire("coordinator:other", 60.0, 0)
    clock.advance(60.0)
    assert opened(other).standing()[0] == "stopped"
    took_over = opened(other).acquire("coordinator:other", 60.0, 0).took_over
    assert took_over is not None
    assert "stopped" in took_over
    here.carry_on(100)
    assert not file.is_current(mine.epoch), "woken up, it must find itself fenced"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0" * 512, id="zero-filled"),
        pytest.param(b'{"holder": "coordinator:main", "epo', id="torn"),
        pytest.param(b"\xff\xfe garbage", id="garbage"),
        pytest.param(b"[]", id="another shape"),
        pytest.param(b'{"holder": "\xe2\x82"}', id="half a character"),
        pytest.param(b" " * (65 << 10), id="too long"),
    ],
)
def test_damaged_lease_is_taken_over(
    opened: Opener, here: FakeProcesses, path: str, damage: bytes
) -> None:
    write(path, damage)
    file = opened(here)
    assert file.standing() == ("damaged", None)
    assert file.read() is None
    assert not file.is_current(0)
    lease, took_over = file.acquire("coordinator:main", 60.0, epoch_floor=5)
    assert lease.epoch == 6
    assert took_over is not None
    assert "damaged" in took_over


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", "3"), ("epoch", -1), ("epoch", 1 << 60), ("pid", None), ("started", "now"),
        ("expires_at", 1e300), ("acquired_at", -1.0), ("released", "no"), ("holder", 7),
    ],
)  # fmt: skip
def test_lease_with_a_field_of_the_wrong_type_is_damaged(
    opened: Opener, here: FakeProcesses, path: str, field: str, value: object
) -> None:
    good = msgspec.to_builtins(opened(here).acquire("coordinator:main", 60.0, 0).lease)
    write(path, msgspec.json.encode({**good, field: value}))
    assert opened(here).standing()[0] == "damaged"


def test_unknown_fields_and_blanks_are_tolerated(
    opened: Opener, here: FakeProcesses, path: str
) -> None:
    lease = opened(here).acquire("coordinator:main", 60.0, 0).lease
    fields = {**msgspec.to_builtins(lease), "later": {"deep": [1]}}
    write(path, b"  " + msgspec.json.encode(fields) + b"\r\n\r\n")
    assert opened(here).read() == lease


def test_second_object_of_the_same_process_supersedes_the_first(
    opened: Opener, here: FakeProcesses
) -> None:
    first, second = opened(here), opened(here)
    old = first.acquire("coordinator:main", 60.0, 0).lease
    assert second.standing()[0] == "ours"
    new, took_over = second.acquire("coordinator:main", 60.0, 0)
    assert took_over is not None
    assert "this very process" in took_over
    assert not first.is_current(old.epoch)
    assert second.is_current(new.epoch)
    assert "epoch 2" in first.fenced(old.epoch).message
    with pytest.raises(FencedError, match="epoch 1 is over"):
        first.renew(old)
    first.release(old)
    assert second.is_current(new.epoch), "the superseded one must not release its successor"


def test_removed_lease_fences_its_holder(opened: Opener, here: FakeProcesses, path: str) -> None:
    file = opened(here)
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    os.unlink(path)
    assert not file.is_current(lease.epoch)
    assert "nobody has the lease" in file.fenced(lease.epoch).message
    with pytest.raises(FencedError):
        file.renew(lease)
    file.release(lease)
    assert not os.path.exists(path)


def test_emptied_lease_fences_its_holder(opened: Opener, here: FakeProcesses, path: str) -> None:
    file = opened(here)
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    write(path, b"")
    assert not file.is_current(lease.epoch)


def test_renewal_moves_the_expiry_and_nothing_else(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    file = opened(here)
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    clock.advance(45.0)
    renewed = file.renew(lease)
    assert renewed == msgspec.structs.replace(lease, expires_at=clock.now() + 60.0)
    assert file.read() == renewed
    assert file.is_current(lease.epoch)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_clock_step_between_two_renewals_makes_no_second_holder_on_this_host(
    opened: Opener, here: FakeProcesses, clock: FakeClock, step_s: float
) -> None:
    file, rival = opened(here), opened(here.seen_from(200))
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    clock.step(step_s)
    with pytest.raises(LeaseHeldError):
        rival.acquire("coordinator:other", 60.0, 0)
    lease = file.renew(lease)
    clock.step(-2 * step_s)
    with pytest.raises(LeaseHeldError):
        rival.acquire("coordinator:other", 60.0, 0)
    assert file.is_current(lease.epoch)


def test_clock_step_that_lets_a_foreign_lease_expire_fences_its_holder(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    there = opened(FakeProcesses(pid=100, host="there"))
    lease = there.acquire("coordinator:main", 60.0, 0).lease
    clock.step(HOUR_S)
    mine = opened(here).acquire("coordinator:other", 60.0, 0).lease
    clock.step(-HOUR_S)
    assert mine.epoch > lease.epoch
    assert not there.is_current(lease.epoch)
    with pytest.raises(FencedError):
        there.renew(lease)


def test_clock_step_back_makes_a_foreign_lease_last_longer_never_shorter(
    opened: Opener, here: FakeProcesses, clock: FakeClock
) -> None:
    opened(FakeProcesses(pid=100, host="there")).acquire("coordinator:main", 60.0, 0)
    clock.step(-HOUR_S)
    clock.advance(HOUR_S)
    assert opened(here).standing()[0] == "held"


def test_a_new_epoch_shows_in_the_size_whatever_the_inode_and_the_time_say(
    opened: Opener, here: FakeProcesses, path: str
) -> None:
    """Inode reuse within one tick of the clock is the case that a stat could miss."""
    sizes: set[int] = set()
    for _ in range(20):
        opened(here).acquire("coordinator:" + "x" * len(sizes), 60.0 + len(sizes) / 8, 0)
        sizes.add(os.stat(path).st_size)
    assert len(sizes) == 20


def test_command_without_a_lease_is_refused_only_while_a_coordinator_may_live(
    opened: Opener, here: FakeProcesses, path: str, clock: FakeClock
) -> None:
    coordinator, command = opened(here), opened(here.seen_from(200))
    command.check_free()
    lease = coordinator.acquire("coordinator:main", 60.0, 0).lease
    with pytest.raises(LeaseHeldError, match="pid 100"):
        command.check_free()
    with pytest.raises(LeaseHeldError, match="pid 100"):
        opened(here).check_free()
    coordinator.release(lease)
    command.check_free()
    coordinator.acquire("coordinator:main", 60.0, 0)
    with pytest.raises(LeaseHeldError):
        command.check_free()
    here.kill(100)
    command.check_free()
    write(path, b"")
    command.check_free()
    os.unlink(path)
    command.check_free()


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.calls.append("read")
        return super().read(path, offset, length)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        self.calls.append(f"replace durable={durable}")
        super().replace(path, data, durable=durable)


def test_only_the_acquisition_is_synced_and_an_unchanged_lease_is_not_read_again(
    path: str, here: FakeProcesses, clock: FakeClock
) -> None:
    disk = CountingDisk()
    file = LeaseFile(disk, path, here, clock)
    lease = file.acquire("coordinator:main", 60.0, 0).lease
    assert disk.calls == ["replace durable=True"]
    disk.calls.clear()
    assert all(file.is_current(lease.epoch) for _ in range(100))
    assert disk.calls == []
    file.release(file.renew(lease))
    assert disk.calls == ["replace durable=False", "replace durable=False"]
    disk.calls.clear()
    file.check_free()
    assert disk.calls == []


def test_failed_write_leaves_the_old_lease(
    opened: Opener, here: FakeProcesses, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(here)
    lease = file.acquire("coordinator:main", 60.0, 0).lease

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StorageError, match="space"):
            file.renew(lease)
    assert file.is_current(lease.epoch)
    assert os.listdir(os.path.dirname(path)) == ["lease.json"]


def test_renewing_without_an_acquisition_is_our_own_fault(
    opened: Opener, here: FakeProcesses
) -> None:
    lease = opened(here).acquire("coordinator:main", 60.0, 0).lease
    with pytest.raises(AssertionError, match="perdure is at fault"):
        opened(here).renew(lease)


def test_lease_times_are_shown_in_utc() -> None:
    lease = Lease("coordinator:main", 1, "here", "b", 7, 0.0, acquired_at=0.0, expires_at=1.0)
    assert "since 1970-01-01T00:00:00Z" in lease_module._who(lease)
