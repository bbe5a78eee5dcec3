"""The drop box: a message is durable when dropped, answered once, and never silently lost."""

import os
from typing import Any

import msgspec
import pytest

from perdure.core import model
from perdure.errors import StorageError, UsageError
from perdure.storage import spool
from perdure.storage.disk import RealDisk
from perdure.storage.spool import Damaged, Message, Stamp
from perdure.storage.workspace import Layout


class Killed(BaseException):
    """Stands for the end of the process."""


class RecordingDisk(RealDisk):
    """Notes what is made durable, and can die instead of making one call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.dies_at = ""

    def _note(self, call: str) -> None:
        if self.dies_at and call.startswith(self.dies_at):
            raise Killed
        self.calls.append(call)

    def make_dirs(self, path: str) -> None:
        self._note(f"make_dirs {os.path.basename(path)}")
        super().make_dirs(path)

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        self._note(f"replace {os.path.basename(path)} durable={durable}")
        super().replace(path, data, durable=durable)

    def unlink(self, path: str, *, durable: bool) -> None:
        self._note(f"unlink {os.path.basename(path)} durable={durable}")
        super().unlink(path, durable=durable)


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


@pytest.fixture
def at(workspace: str) -> Layout:
    return Layout(workspace)


def message(message_id: str, when: float = 0.0, **args: Any) -> Message:
    return Message(message_id, "steer", args, "sponsor:ann", when)


def names(at: Layout) -> list[str]:
    return sorted(os.listdir(at.spool))


def test_message_is_durable_in_name_and_bytes_before_its_sender_says_so(
    disk: RecordingDisk, at: Layout
) -> None:
    spool.drop(disk, at, message("st-1", text="halt\u2028now"))
    assert disk.calls == ["make_dirs spool", "replace st-1.json durable=True"]
    found = spool.pending(disk, at)
    assert found.messages == [message("st-1", text="halt\u2028now")]
    assert found.damaged == []


def test_messages_come_in_the_order_of_time_then_id(disk: RecordingDisk, at: Layout) -> None:
    for message_id, when in (("c", 2.0), ("b", 2.0), ("z", 1.0), ("a", 3.0)):
        spool.drop(disk, at, message(message_id, when))
    assert [m.id for m in spool.pending(disk, at).messages] == ["z", "b", "c", "a"]


def test_empty_or_missing_drop_box_holds_nothing(disk: RecordingDisk, at: Layout) -> None:
    assert spool.pending(disk, at) == ([], [])
    disk.make_dirs(at.spool)
    assert spool.pending(disk, at) == ([], [])


def test_files_in_the_making_and_results_are_not_messages(disk: RecordingDisk, at: Layout) -> None:
    spool.drop(disk, at, message("st-1"))
    spool.drop(disk, at, message("st-2"))
    spool.settle(disk, at, "st-2", {"ref": "J-2"})
    for name in (".st-9.json.tmp-1-0", ".st-8.json"):
        disk.replace(f"{at.spool}/{name}", b"{", durable=False)
    found = spool.pending(disk, at)
    assert [m.id for m in found.messages] == ["st-1"]
    assert found.damaged == []


def test_files_that_are_no_message_are_reported_and_left_alone(
    disk: RecordingDisk, at: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "event_bytes_max", 1_000)
    spool.drop(disk, at, message("good"))
    good = disk.read(f"{at.spool}/good.json")
    damage = {
        "empty.json": b"",
        "torn.json": good[:20],
        "noise.json": b"\xff\xfe\x00",
        "shape.json": b"[]",
        "types.json": good.replace(b'"steer"', b"7"),
        "renamed.json": good,
        "long.json": good + b" " * 1_000,
        "README": b"what is this place?",
        "two words.json": good,
        "x.RESULT.json": good,
    }
    for name, data in damage.items():
        disk.replace(f"{at.spool}/{name}", data, durable=False)
    disk.make_dirs(f"{at.spool}/folder.json")
    before = names(at)
    found = spool.pending(disk, at)
    assert [m.id for m in found.messages] == ["good"]
    assert {d.name for d in found.damaged} == {*damage, "folder.json"}
    assert all(d.reason for d in found.damaged)
    assert names(at) == before


# ------------------------------------------------------------------------------------ setting aside


def damaged(disk: RecordingDisk, at: Layout, name: str, data: bytes = b"{") -> Damaged:
    disk.replace(f"{at.spool}/{name}", data, durable=False)
    (found,) = [entry for entry in spool.pending(disk, at).damaged if entry.name == name]
    return found


@pytest.mark.parametrize("name", ["torn.json", "READ ME", "caf\u00e9.json", "x" * 200])
def test_what_is_no_message_moves_out_of_the_box_whole(
    disk: RecordingDisk, at: Layout, name: str
) -> None:
    disk.make_dirs(at.spool)
    entry = damaged(disk, at, name, b"some words")
    spool.move_aside(disk, at, entry)
    assert names(at) == []
    target = spool.aside_path(at, entry)
    assert os.path.dirname(target) == at.recovered
    assert disk.read(target) == b"some words"
    spool.move_aside(disk, at, entry)
    assert disk.read(target) == b"some words", "again changes nothing"


def test_a_message_that_has_taken_its_place_stays(disk: RecordingDisk, at: Layout) -> None:
    disk.make_dirs(at.spool)
    entry = damaged(disk, at, "st-1.json")
    spool.drop(disk, at, message("st-1"))
    spool.move_aside(disk, at, entry)
    assert spool.pending(disk, at).messages == [message("st-1")]


def test_a_message_that_takes_its_place_in_the_last_moment_comes_back(
    disk: RecordingDisk, at: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.make_dirs(at.spool)
    entry = damaged(disk, at, "st-1.json")
    monkeypatch.setattr(
        disk, "make_dirs", lambda path: (os.makedirs(path), spool.drop(RealDisk(), at, late))
    )
    late = message("st-1", text="sent again")
    spool.move_aside(disk, at, entry)
    assert spool.pending(RealDisk(), at).messages == [late]


def test_the_same_name_with_another_content_is_another_file(
    disk: RecordingDisk, at: Layout
) -> None:
    disk.make_dirs(at.spool)
    one, two = damaged(disk, at, "a.json", b"{"), damaged(disk, at, "a.json", b"{{")
    other = damaged(disk, at, "b.json", b"{")
    assert len({one.digest, two.digest, other.digest}) == 3
    assert damaged(disk, at, "a.json", b"{").digest == one.digest


def test_message_settled_while_looking_is_left_out(
    at: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    spool.drop(disk, at, message("st-1"))
    spool.drop(disk, at, message("st-2"))
    monkeypatch.setattr(
        RealDisk, "list_dir", lambda self, path: ["gone.json", *sorted(os.listdir(path))]
    )
    found = spool.pending(disk, at)
    assert [m.id for m in found.messages] == ["st-1", "st-2"]
    assert found.damaged == []


def test_answer_is_written_before_the_message_goes_and_the_loss_is_synced(
    disk: RecordingDisk, at: Layout
) -> None:
    spool.drop(disk, at, message("st-1"))
    disk.calls.clear()
    assert spool.take_result(disk, at, "st-1") is None
    spool.settle(disk, at, "st-1", {"ref": "J-42"})
    assert disk.calls == [
        "replace st-1.result.json durable=False",
        "unlink st-1.json durable=True",
    ]
    assert spool.pending(disk, at).messages == []
    assert spool.take_result(disk, at, "st-1") == {"ref": "J-42"}
    assert spool.take_result(disk, at, "st-1") is None
    assert names(at) == []


@pytest.mark.parametrize("dies_at", ["replace", "unlink"])
def test_kill_while_settling_leaves_the_message_to_be_discarded(
    disk: RecordingDisk, at: Layout, dies_at: str
) -> None:
    spool.drop(disk, at, message("st-1"))
    disk.dies_at = dies_at
    with pytest.raises(Killed):
        spool.settle(disk, at, "st-1", {"ref": "J-42"})
    disk.dies_at = ""
    assert [m.id for m in spool.pending(disk, at).messages] == ["st-1"]
    spool.discard(disk, at, "st-1")
    spool.discard(disk, at, "st-1")
    assert spool.pending(disk, at) == ([], [])


def test_kill_while_dropping_leaves_no_message(disk: RecordingDisk, at: Layout) -> None:
    disk.dies_at = "replace"
    with pytest.raises(Killed):
        spool.drop(disk, at, message("st-1"))
    assert spool.pending(disk, at) == ([], [])


def test_full_disk_is_no_message_and_says_so(
    disk: RecordingDisk, at: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="space"):
        spool.drop(disk, at, message("st-1"))
    assert names(at) == []


@pytest.mark.parametrize("torn", [b"", b"\0" * 64, b'{"ref": "J-', b"[]", b"\xff"])
def test_answer_torn_by_a_power_cut_is_none(disk: RecordingDisk, at: Layout, torn: bytes) -> None:
    disk.make_dirs(at.spool)
    disk.replace(f"{at.spool}/st-1.result.json", torn, durable=False)
    assert spool.take_result(disk, at, "st-1") is None
    assert names(at) == []


def test_dropping_the_same_id_again_is_one_message(disk: RecordingDisk, at: Layout) -> None:
    spool.drop(disk, at, message("st-1"))
    spool.drop(disk, at, message("st-1"))
    assert names(at) == ["st-1.json"]


@pytest.mark.parametrize(
    "message_id", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "x" * 65, "a.result", "a.RESULT"]
)
def test_only_an_id_names_a_message(disk: RecordingDisk, at: Layout, message_id: str) -> None:
    with pytest.raises(UsageError):
        spool.drop(disk, at, message(message_id))
    with pytest.raises(UsageError):
        spool.settle(disk, at, message_id, {})
    with pytest.raises(UsageError):
        spool.discard(disk, at, message_id)
    with pytest.raises(UsageError):
        spool.take_result(disk, at, message_id)
    assert disk.calls == []


def test_message_beyond_the_limit_is_refused_with_the_limit(
    disk: RecordingDisk, at: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "event_bytes_max", 100)
    with pytest.raises(UsageError, match="100 is the most"):
        spool.drop(disk, at, message("st-1", text="x" * 100))
    assert disk.calls == []
    assert model.event_bytes_max > 1 << 20


def test_unknown_fields_of_a_later_version_are_tolerated(disk: RecordingDisk, at: Layout) -> None:
    fields = {**msgspec.to_builtins(message("st-1")), "later": [1]}
    disk.make_dirs(at.spool)
    disk.replace(f"{at.spool}/st-1.json", msgspec.json.encode(fields), durable=False)
    assert spool.pending(disk, at).messages == [message("st-1")]


def test_only_old_answers_and_old_unfinished_messages_are_swept(
    disk: RecordingDisk, at: Layout
) -> None:
    for message_id in ("old", "new", "open"):
        spool.drop(disk, at, message(message_id))
    for message_id in ("old", "new"):
        spool.settle(disk, at, message_id, {})
    for name in (".a.json.tmp-7-0", ".b.json.tmp-8-0"):
        disk.replace(f"{at.spool}/{name}", b"{", durable=False)
    for name in ("old.result.json", ".a.json.tmp-7-0", "open.json"):
        os.utime(f"{at.spool}/{name}", (1_000.0, 1_000.0))
    assert spool.sweep(disk, at, before=2_000.0) == 2
    assert names(at) == [".b.json.tmp-8-0", "new.result.json", "open.json"]


# ------------------------------------------------------------------------------------ cheap looking


def seen_at(at: Layout, mtime_s: float) -> None:
    os.utime(at.spool, (mtime_s, mtime_s))


def test_missing_drop_box_has_not_changed(disk: RecordingDisk, at: Layout) -> None:
    assert spool.changed(disk, at, None, 1_000.0) == (False, None)


def test_first_look_is_a_change_and_the_second_is_not(disk: RecordingDisk, at: Layout) -> None:
    disk.make_dirs(at.spool)
    seen_at(at, 1_000.0)
    changed, stamp = spool.changed(disk, at, None, 2_000.0)
    assert changed
    assert isinstance(stamp, Stamp)
    assert spool.changed(disk, at, stamp, 2_000.0) == (False, stamp)
    seen_at(at, 1_001.0)
    assert spool.changed(disk, at, stamp, 2_000.0)[0]


def test_change_within_the_same_tick_as_the_last_look_is_not_missed(
    disk: RecordingDisk, at: Layout
) -> None:
    """The directory's time may be the same before and after the second message."""
    spool.drop(disk, at, message("st-1"))
    seen_at(at, 1_000.0)
    changed, stamp = spool.changed(disk, at, None, 1_000.01)
    assert changed
    spool.drop(disk, at, message("st-2"))
    seen_at(at, 1_000.0)
    changed, stamp = spool.changed(disk, at, stamp, 1_000.2)
    assert changed, "the first look came too early to be remembered"
    assert spool.changed(disk, at, stamp, 1_000.3) == (False, stamp)


def test_time_that_lies_ahead_is_not_relied_on(disk: RecordingDisk, at: Layout) -> None:
    """After the clock was set back."""
    disk.make_dirs(at.spool)
    seen_at(at, 5_000.0)
    assert spool.changed(disk, at, None, 1_400.0) == (True, None)


def test_swapped_directory_is_a_change(disk: RecordingDisk, at: Layout) -> None:
    disk.make_dirs(at.spool)
    seen_at(at, 1_000.0)
    stamp = spool.changed(disk, at, None, 2_000.0)[1]
    os.rename(at.spool, f"{at.spool}-old")
    disk.make_dirs(at.spool)
    seen_at(at, 1_000.0)
    assert spool.changed(disk, at, stamp, 2_000.0)[0]
