"""The mirror of a journal: what a look at both files says, and how they are put right (J-2)."""

import threading
from collections.abc import Callable

import pytest

from perdure.core.codec import EMPTY_TIP, Commit, Scan, encode_commit
from perdure.core.events import Draft
from perdure.core.fold import Replica
from perdure.core.projection import seal_snapshot
from perdure.errors import CorruptError, StorageError
from perdure.storage import mirror_repair
from perdure.storage.journal import Journal
from perdure.storage.mirror import (
    Mirror,
    common_prefix,
    compare,
    first_difference,
    mirror_facts,
    more_than_one_commit,
    slow_syncs_s,
    whole_up_to,
    with_cure,
)
from perdure.storage.workspace import Layout, is_workspace
from perdure.testing import SimClock, SimDisk

LAYOUT = Layout("/w")


def history(count: int = 5, *, tier: int = 2, ts: str = "t") -> list[Commit]:
    """Commits of a task; the third of them has two lines."""
    tip, commits = EMPTY_TIP, list[Commit]()
    for number in range(count):
        if number == 0:
            payload = {"task_id": "T", "goal": "g", "tier": tier, "policies": {}}
            drafts = [Draft("INSTANCE_STARTED", "task", "T", payload)]
        else:
            note = Draft("NOTE", "task", "T", {"op": "note", "text": f"note {number}"})
            drafts = [note, note] if number == 2 else [note]
        commits.append(encode_commit(tip, drafts, ts=ts, actor="a", epoch=1))
        tip = commits[-1].tip
    return commits


def data_of(commits: list[Commit]) -> bytes:
    return b"".join(commit.data for commit in commits)


WHOLE = data_of(history())


def disk_with(journal: bytes | None, mirror: bytes | None) -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/w")
    for path, data in ((LAYOUT.journal, journal), (LAYOUT.mirror, mirror)):
        if data is not None:
            disk.replace(path, data, durable=True)
    return disk


def scanned(disk: SimDisk) -> Scan:
    scan = Scan()
    for _ in scan.commits(disk.read_chunks(LAYOUT.journal)):
        pass
    return scan


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


# What a look says


def test_two_that_are_alike_are_whole() -> None:
    assert mirror_facts(disk_with(WHOLE, WHOLE), LAYOUT) == "whole"


def test_a_task_of_a_lower_tier_has_no_mirror_to_be() -> None:
    assert mirror_facts(disk_with(data_of(history(tier=1)), None), LAYOUT) == ""


def test_a_file_of_that_name_in_a_lower_tier_is_nobodys_mirror() -> None:
    assert mirror_facts(disk_with(data_of(history(tier=1)), WHOLE), LAYOUT) == ""


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        (None, "journal-mirror.jsonl is gone"),
        (flipped(WHOLE, len(history()[0].data) + 9), "in line 2, at byte"),
        (data_of(history()[:2]), "J-3 to J-6 are not in it"),
        (b"", "J-1 to J-6 are not in it"),
        (data_of(history(7)), "goes on behind J-6"),
        (WHOLE + history()[4].data, "goes on behind J-6"),
        (data_of(history(ts="u")), "both verify by themselves"),
    ],
    ids=["gone", "flipped", "short", "empty", "two commits more", "its last line twice", "fork"],
)
def test_what_is_wrong_is_said(mirror: bytes | None, said: str) -> None:
    assert said in mirror_facts(disk_with(WHOLE, mirror), LAYOUT)


@pytest.mark.parametrize(
    "mirror",
    [
        data_of(history()[:4]),
        data_of(history()[:4]) + history()[4].data[:9],
        data_of(history(6)),
        WHOLE + history(6)[5].data[:9],
    ],
    ids=["lacks the last", "has part of the last", "has one more", "has part of one more"],
)
def test_a_commit_under_way_or_left_by_a_crash_is_nothing_wrong(mirror: bytes) -> None:
    disk = disk_with(WHOLE, mirror)
    assert mirror_facts(disk, LAYOUT) == "whole"
    found = compare(disk, LAYOUT, scanned(disk))
    assert found.wrong == ""
    assert "J-6" in found.unfinished


def test_a_directory_in_its_place_is_said() -> None:
    disk = disk_with(WHOLE, None)
    disk.make_dirs(LAYOUT.mirror)
    assert mirror_facts(disk, LAYOUT) == "journal-mirror.jsonl is a dir, not a file"
    with pytest.raises(CorruptError, match="is a dir"):
        Mirror(disk, LAYOUT.mirror, SimClock()).size()


def test_a_lone_mirror_is_a_workspace_whose_journal_is_lost() -> None:
    assert is_workspace(disk_with(None, WHOLE), "/w")
    assert not is_workspace(disk_with(None, None), "/w")
    assert mirror_facts(disk_with(None, WHOLE), LAYOUT) != "whole"


def test_damage_of_the_journal_is_told_with_the_cure_where_the_mirror_goes_further() -> None:
    error = CorruptError("line 2 is damaged.", code="journal_corrupt")
    told = with_cure(disk_with(flipped(WHOLE, 300), WHOLE), LAYOUT, error)
    assert told.code == "journal_corrupt"
    assert "whole up to J-6" in told.message
    assert "perdure resume" in told.fix
    assert with_cure(disk_with(WHOLE, flipped(WHOLE, 9)), LAYOUT, error) is error
    assert whole_up_to(disk_with(WHOLE, None), LAYOUT) is EMPTY_TIP


def test_differences_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.storage.mirror._block_bytes", 7)
    disk = disk_with(WHOLE, WHOLE)
    assert first_difference(disk, LAYOUT.journal, LAYOUT.mirror, len(WHOLE)) is None
    for at in (0, 6, 7, 8, len(WHOLE) - 1):
        disk = disk_with(WHOLE, flipped(WHOLE, at))
        assert first_difference(disk, LAYOUT.journal, LAYOUT.mirror, len(WHOLE)) == at
        assert first_difference(disk, LAYOUT.journal, LAYOUT.mirror, at) is None


def test_common_prefix_is_what_both_begin_with() -> None:
    assert [common_prefix(b"abc", other) for other in (b"abd", b"abc", b"ab", b"", b"x")] == [
        2, 3, 2, 0, 0,
    ]  # fmt: skip


def test_what_follows_one_commit_is_more_than_a_crash_leaves() -> None:
    commits = history(7)
    tip = commits[3].tip
    assert not more_than_one_commit(tip, commits[4].data)
    assert not more_than_one_commit(tip, commits[4].data[:-3])
    assert more_than_one_commit(tip, commits[4].data + commits[5].data)
    assert more_than_one_commit(tip, commits[4].data + b"x")
    assert more_than_one_commit(tip, commits[5].data)


# Committing


def caught_up(disk: SimDisk) -> tuple[Journal, Mirror]:
    journal, mirror = Journal(disk, LAYOUT.journal), Mirror(disk, LAYOUT.mirror, SimClock())
    journal.mirror = mirror
    assert journal.catch_up(lambda _: None) is None
    return journal, mirror


def test_a_commit_is_written_to_both_before_either_is_synced() -> None:
    disk = disk_with(WHOLE, WHOLE)
    journal, mirror = caught_up(disk)
    before = len(disk.log)
    commit = history(6)[5]
    journal.append(commit)
    steps = [(op.kind, op.path) for op in disk.log[before:]]
    assert steps == [
        ("write", LAYOUT.journal),
        ("write", LAYOUT.mirror),
        ("sync_file", LAYOUT.journal),
        ("sync_file", LAYOUT.mirror),
    ]
    assert journal.is_durable
    assert mirror.agrees(commit.tip)
    assert disk.read(LAYOUT.mirror) == disk.read(LAYOUT.journal) == WHOLE + commit.data


def test_a_journal_without_a_mirror_takes_no_step_more() -> None:
    disk = disk_with(WHOLE, None)
    journal = Journal(disk, LAYOUT.journal)
    journal.catch_up(lambda _: None)
    before = len(disk.log)
    journal.append(history(6)[5])
    assert [op.kind for op in disk.log[before:]] == ["write", "sync_file"]


def test_a_mirror_that_cannot_be_opened_stops_the_commit_before_it_is_written() -> None:
    disk = disk_with(WHOLE, None)
    journal, _ = caught_up(disk)
    with pytest.raises(StorageError):
        journal.append(history(6)[5])
    assert disk.read(LAYOUT.journal) == WHOLE


def test_a_mirror_that_somebody_else_wrote_to_is_noticed_before_the_acknowledgement() -> None:
    disk = disk_with(WHOLE, WHOLE)
    journal, _ = caught_up(disk)
    disk.beside().open_append(LAYOUT.mirror).append(b"x")
    with pytest.raises(CorruptError, match="somebody else") as caught:
        journal.append(history(6)[5])
    assert caught.value.code == "mirror_disagrees"


def test_agreement_is_asked_of_the_last_line_once_and_of_the_size_each_time() -> None:
    disk = disk_with(WHOLE, WHOLE)
    journal, mirror = caught_up(disk)
    assert mirror.agrees(journal.tip)
    assert mirror.agrees(journal.tip)
    disk.replace(LAYOUT.mirror, flipped(WHOLE, len(WHOLE) - 30), durable=True)
    assert not mirror.agrees(journal.tip), "another file is looked at anew"
    disk.replace(LAYOUT.mirror, WHOLE[:-1], durable=True)
    assert not mirror.agrees(journal.tip)
    disk.unlink(LAYOUT.mirror, durable=True)
    assert not mirror.agrees(journal.tip)
    assert mirror.size() is None


class SlowFile:
    """An append file whose sync lets time pass."""

    def __init__(self, pass_time: Callable[[], object], error: Exception | None = None) -> None:
        self.threads: list[int] = []
        self._pass_time = pass_time
        self._error = error
        self._size = 0

    def append(self, data: bytes) -> None:
        self._size += len(data)

    def sync(self) -> None:
        self.threads.append(threading.get_ident())
        self._pass_time()
        if self._error is not None:
            raise self._error

    def size(self) -> int:
        return self._size

    def close(self) -> None: ...


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


class AtOnceDisk(SimDisk):
    syncs_at_once = True

    def __init__(self, file: SlowFile) -> None:
        super().__init__()
        self.file = file

    def open_append(self, path: str) -> SlowFile:  # type: ignore[override]
        return self.file


def test_syncs_of_a_slow_device_are_under_way_at_once_from_the_second_commit_on(
    clock: SimClock,
) -> None:
    def slow() -> None:
        clock.advance(slow_syncs_s * 0.6)

    first, second = SlowFile(slow), SlowFile(slow)
    mirror = Mirror(AtOnceDisk(second), LAYOUT.mirror, clock)
    commits = history(3)
    for commit in commits:
        mirror.append_with(first, commit)
    here = threading.get_ident()
    assert first.threads == [here] * 3
    assert second.threads[0] == here
    assert here not in second.threads[1:]


def test_syncs_of_a_fast_device_take_no_thread(clock: SimClock) -> None:
    first, second = SlowFile(lambda: None), SlowFile(lambda: None)
    mirror = Mirror(AtOnceDisk(second), LAYOUT.mirror, clock)
    for commit in history(3):
        mirror.append_with(first, commit)
    assert set(second.threads) == {threading.get_ident()}


@pytest.mark.parametrize("failing", ["first", "second", "both"])
def test_a_failure_of_either_sync_under_way_at_once_is_raised(
    failing: str, clock: SimClock
) -> None:
    error = StorageError("no space.", code="disk_full")

    def slow() -> None:
        clock.advance(slow_syncs_s * 0.6)

    first, second = SlowFile(slow), SlowFile(slow)
    mirror = Mirror(AtOnceDisk(second), LAYOUT.mirror, clock)
    commits = history(3)
    mirror.append_with(first, commits[0])
    for file, name in ((first, "first"), (second, "second")):
        if failing in (name, "both"):
            file._error = error
    with pytest.raises(StorageError, match="no space"):
        mirror.append_with(first, commits[1])
    assert len(second.threads) == 2, "nobody is left at work"


# Putting right


def repaired(disk: SimDisk) -> mirror_repair.Fixes:
    return mirror_repair.repair(disk, LAYOUT, mirror_repair.read_history(disk, LAYOUT))


@pytest.mark.parametrize("which", ["journal", "mirror"])
def test_damage_is_set_aside_from_its_first_byte_to_its_last_and_no_more(which: str) -> None:
    bad = flipped(flipped(WHOLE, 300), 420)
    disk = disk_with(bad, WHOLE) if which == "journal" else disk_with(WHOLE, bad)
    fixes = repaired(disk)
    (fragment,) = fixes.fragments
    assert fragment.path.startswith(f"tmp/recovered/{which}-damaged-300-")
    assert disk.read(f"/w/{fragment.path}") == bad[300:421]
    assert disk.read(LAYOUT.journal) == disk.read(LAYOUT.mirror) == WHOLE
    assert mirror_repair.are_alike(disk, LAYOUT)
    assert repaired(disk) == mirror_repair.Fixes(), "again: nothing left to do"


def test_a_history_is_put_together_from_both_when_each_lacks_another_line() -> None:
    commits = history(6)
    whole = data_of(commits)
    one = flipped(whole, commits[1].tip.offset - 9)
    other = flipped(whole, commits[4].tip.offset - 9)
    disk = disk_with(one, other)
    read = mirror_repair.read_history(disk, LAYOUT)
    assert [part.path for part in read.parts] == [LAYOUT.mirror, LAYOUT.journal]
    assert (
        mirror_repair.repair(disk, LAYOUT, read)
        .repaired[0]
        .startswith("the journal restored from its mirror and what is whole of itself, up to J-7")
    )
    assert disk.read(LAYOUT.journal) == disk.read(LAYOUT.mirror) == whole


@pytest.mark.parametrize("which", ["journal", "mirror"])
def test_a_number_that_a_flipped_bit_has_made_larger_is_no_later_line(which: str) -> None:
    for commit in history()[:-1]:
        at = commit.tip.start + len(b'{"seq":')
        bad = bytearray(WHOLE)
        bad[at] = ord("9")
        disk = disk_with(bytes(bad), WHOLE) if which == "journal" else disk_with(WHOLE, bytes(bad))
        assert repaired(disk).fragments
        assert disk.read(LAYOUT.journal) == disk.read(LAYOUT.mirror) == WHOLE


def test_a_later_line_that_only_a_damaged_file_has_is_not_given_up() -> None:
    """The journal has lost a line, and the mirror its end: the last line is whole in one of them,
    at the place where the history has another."""
    commits = history(7)
    journal = data_of([*commits[:3], *commits[4:]])
    disk = disk_with(journal, data_of(commits[:6]))
    with pytest.raises(CorruptError, match="both damaged behind J-7"):
        repaired(disk)
    assert disk.read(LAYOUT.journal) == journal


def test_a_torn_tail_of_the_journal_is_left_to_recovery() -> None:
    disk = disk_with(WHOLE + b'{"seq":7', WHOLE)
    assert repaired(disk) == mirror_repair.Fixes()
    assert disk.read(LAYOUT.journal) == WHOLE + b'{"seq":7'


def test_a_fork_names_its_first_line_and_both_texts() -> None:
    commits = history(4)
    other = encode_commit(
        commits[2].tip, [Draft("NOTE", "task", "T", {"op": "note", "text": "not so"})],
        ts="t", actor="a", epoch=1,
    )  # fmt: skip
    disk = disk_with(data_of(commits), data_of(commits[:3]) + other.data)
    with pytest.raises(CorruptError) as caught:
        repaired(disk)
    assert caught.value.code == "mirror_forked"
    assert "from J-5 on" in caught.value.message
    assert "note 3" in caught.value.message
    assert "not so" in caught.value.message
    assert disk.read(LAYOUT.journal) == data_of(commits)


def test_what_a_rotten_file_says_is_outweighed_by_what_verifies_and_kept() -> None:
    """An own text in the rotten part of one is kept aside; only what the chain proves stands."""
    commits = history(5)
    note = [Draft("NOTE", "task", "T", {"op": "note", "text": "note X"})]
    forked = encode_commit(commits[3].tip, note, ts="t", actor="a", epoch=1)
    assert len(forked.data) == len(commits[4].data)
    journal = flipped(data_of(commits), 300)
    disk = disk_with(journal, data_of(commits[:4]) + forked.data)
    (fragment,) = repaired(disk).fragments
    assert (
        disk.read(LAYOUT.journal) == disk.read(LAYOUT.mirror) == data_of(commits[:4]) + forked.data
    )
    assert b"note 4" in disk.read(f"/w/{fragment.path}")


@pytest.mark.parametrize("lost", ["intact newer lines", "a projection"])
def test_what_is_whole_in_neither_is_not_silently_given_up(lost: str) -> None:
    commits = history(6)
    whole = data_of(commits)
    at = commits[1].tip.offset - 9
    if lost == "intact newer lines":
        disk = disk_with(flipped(whole, at), flipped(whole, at))
    else:
        disk = disk_with(data_of(commits[:1]), data_of(commits[:1]))
        journal = disk_with(whole, whole)
        disk = write_snapshot(journal, disk)
    before = disk.tree()
    with pytest.raises(CorruptError) as caught:
        mirror_repair.read_history(disk, LAYOUT)
    assert caught.value.exit_code == 6
    assert "both damaged behind J-1" in caught.value.message
    assert disk.tree() == before


def write_snapshot(of: SimDisk, to: SimDisk) -> SimDisk:
    replica, scan = Replica(), Scan()
    for events in scan.commits(of.read_chunks(LAYOUT.journal)):
        replica.apply_all(events)
    to.replace(LAYOUT.snapshot, seal_snapshot(replica.state, scan.tip), durable=True)
    return to


def test_memory_is_bounded_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.storage.mirror_repair._block_bytes", 16)
    for bad in (flipped(WHOLE, 5), WHOLE[:200], b"", WHOLE + b"\0" * 99, WHOLE.replace(b"1", b"2")):
        disk = disk_with(WHOLE, bad)
        repaired(disk)
        assert disk.read(LAYOUT.mirror) == WHOLE
