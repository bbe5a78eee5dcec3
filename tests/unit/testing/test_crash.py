"""What a power cut may leave: everything that is allowed, and nothing that a sync covered."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from perdure.errors import StorageError
from perdure.testing import Model, SimDisk, choices_count, power_loss_states

MODELS: tuple[Model, ...] = ("independent", "ordered")
each_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/w/d")
    disk.replace("/w/log", b"one\n", durable=True)
    return disk


def outcomes(
    disk: SimDisk, model: Model, limit: int = 10_000
) -> list[dict[str, bytes | str | None]]:
    """The trees after each allowed power cut, without the directories, which never vanish here."""
    found = []
    for left in power_loss_states(disk, model, chance=Random(1), limit=limit):
        tree = left.tree()
        found.append({path: tree[path] for path in sorted(tree) if tree[path] is not None})
    return found


def contents(disk: SimDisk, model: Model, path: str = "/w/log") -> set[object]:
    return {tree.get(path) for tree in outcomes(disk, model)}


@each_model
def test_nothing_that_was_synced_can_be_lost(disk: SimDisk, model: Model) -> None:
    handle = disk.open_append("/w/log")
    handle.append(b"two\n")
    handle.sync()
    disk.rename("/w/log", "/w/d/log")
    disk.make_dirs("/w/x/y")
    disk.truncate("/w/d/log", 6)
    assert choices_count(disk, model) == 1
    (left,) = power_loss_states(disk, model, chance=Random(1))
    assert (
        left.tree()
        == disk.tree()
        == {
            "/w": None,
            "/w/d": None,
            "/w/x": None,
            "/w/x/y": None,
            "/w/d/log": b"one\ntw",
        }
    )


@each_model
def test_what_is_left_is_durable_and_the_disk_that_was_asked_is_as_it_was(
    disk: SimDisk, model: Model
) -> None:
    disk.write("/w/f", b"ab")
    before = disk.tree()
    for left in power_loss_states(disk, model, chance=Random(1)):
        assert choices_count(left, model) == 1
        left.write("/w/g", b"x")
    assert disk.tree() == before


def test_an_unsynced_append_is_kept_lost_cut_zeroed_noise_or_without_its_start(
    disk: SimDisk,
) -> None:
    disk.open_append("/w/log").append(b"ab")
    found = contents(disk, "independent")
    noise = found - {b"one\n" + end for end in (b"ab", b"", b"a", b"\0\0", b"\0b")}
    assert len(found) == 6
    assert [type(data) is bytes and len(data) for data in noise] == [6]
    assert contents(disk, "ordered") == {b"one\n" + end for end in (b"ab", b"", b"a", b"\0\0")}


def test_a_later_write_may_be_kept_while_an_earlier_one_is_lost(disk: SimDisk) -> None:
    handle = disk.open_append("/w/log")
    handle.append(b"a")
    handle.append(b"b")
    assert b"one\n\0b" in contents(disk, "independent")


def test_bytes_on_the_medium_are_overwritten_or_not_but_never_zeros(disk: SimDisk) -> None:
    disk.rewrite("/w/log", 0, b"TWO")
    found = contents(disk, "independent")
    assert found == {b"one\n", b"TWO\n", b"Tne\n", b"TWe\n", b"onO\n", b"oWO\n"}
    assert b"\0" not in b"".join(data for data in found if isinstance(data, bytes))


def test_writing_the_same_bytes_again_can_do_no_harm(disk: SimDisk) -> None:
    disk.rewrite("/w/log", 0, b"one\n")
    assert choices_count(disk) == 1
    handle = disk.open_append("/w/log")
    handle.append(b"x")
    assert all(isinstance(c, bytes) and c[:4] == b"one\n" for c in contents(disk, "independent"))


@each_model
def test_a_name_needs_the_sync_of_its_directory(disk: SimDisk, model: Model) -> None:
    disk.write("/w/d/f", b"")
    assert contents(disk, model, "/w/d/f") == {None, b""}
    disk.sync_dir("/w/d")
    assert contents(disk, model, "/w/d/f") == {b""}


def test_a_synced_file_without_a_synced_name_may_be_gone(disk: SimDisk) -> None:
    disk.write("/w/d/f", b"ab")
    disk.sync_file("/w/d/f")
    assert contents(disk, "independent", "/w/d/f") == {None, b"ab"}
    assert contents(disk, "ordered", "/w/d/f") == {b"ab"}, "ext4 and XFS commit the names before"


def test_changes_to_names_survive_in_any_choice_or_only_in_order(disk: SimDisk) -> None:
    for name in "ab":
        disk.write(f"/w/{name}", b"")
    names = {
        "".join(path[-1] for path in tree if path != "/w/log")
        for tree in outcomes(disk, "independent")
    }
    assert names == {"", "a", "b", "ab"}
    names = {
        "".join(path[-1] for path in tree if path != "/w/log") for tree in outcomes(disk, "ordered")
    }
    assert names == {"", "a", "ab"}


@each_model
def test_a_rename_is_there_whole_or_not_at_all(disk: SimDisk, model: Model) -> None:
    disk.replace("/w/log", b"two\n", durable=False)
    disk.sync_file("/w/log")
    paths = {tuple(path for path in tree if "log" in path) for tree in outcomes(disk, model)}
    assert all("/w/log" in names for names in paths)
    assert contents(disk, model) >= {b"two\n"} >= contents(disk, "ordered")


def test_a_replaced_file_may_be_there_by_name_only(disk: SimDisk) -> None:
    disk.replace("/w/log", b"two\n", durable=False)
    for model in MODELS:
        assert contents(disk, model) >= {b"one\n", b"two\n", b"", b"tw", b"\0\0\0\0"}


def half_synced(first: str) -> Callable[[SimDisk], None]:
    def move(disk: SimDisk) -> None:
        disk.fail(lambda op: op.kind == "sync_dir", errno.EIO)
        with pytest.raises(StorageError):
            disk.rename("/w/log", "/w/d/log")
        disk.sync_dir(first)

    return move


def test_a_move_between_directories_has_two_names_or_none_until_both_are_synced(
    disk: SimDisk,
) -> None:
    unsynced, target_first = disk.survive_kill(), disk.survive_kill()
    source_first = disk.survive_kill()
    unsynced.fail(lambda op: op.kind == "sync_dir", errno.EIO)
    with pytest.raises(StorageError):
        unsynced.rename("/w/log", "/w/d/log")
    half_synced("/w/d")(target_first)
    half_synced("/w")(source_first)

    def names(disk: SimDisk) -> set[tuple[str, ...]]:
        return {tuple(tree) for tree in outcomes(disk, "independent")}

    assert names(unsynced) == {("/w/log",), ("/w/d/log",)}
    assert names(target_first) == {("/w/d/log", "/w/log"), ("/w/d/log",)}
    assert names(source_first) == {(), ("/w/d/log",)}, "the wrong order can lose the file"


@each_model
def test_an_unlink_without_a_sync_may_come_undone(disk: SimDisk, model: Model) -> None:
    disk.unlink("/w/log", durable=False)
    assert contents(disk, model) == {None, b"one\n"}
    disk.sync_dir("/w")
    assert contents(disk, model) == {None}


# ---------------------------------------------------------------------------------- failed syncs


def failed_sync(disk: SimDisk) -> None:
    handle = disk.open_append("/w/log")
    handle.append(b"two\n")
    disk.fail(lambda op: op.kind == "sync_file", errno.EIO)
    with pytest.raises(StorageError):
        handle.sync()


@each_model
def test_after_a_failed_sync_a_later_one_saves_nothing(disk: SimDisk, model: Model) -> None:
    failed_sync(disk)
    after = disk.survive_kill()
    assert after.read("/w/log") == b"one\ntwo\n", "readers still see it"
    after.sync_file("/w/log")
    assert contents(after, model) >= {b"one\n", b"one\ntw", b"one\ntwo\n"}


@each_model
def test_written_again_it_is_saved_by_the_next_sync(disk: SimDisk, model: Model) -> None:
    failed_sync(disk)
    after = disk.survive_kill()
    after.rewrite("/w/log", 4, b"two\n")
    after.sync_file("/w/log")
    assert contents(after, model) == {b"one\ntwo\n"}


@each_model
def test_what_follows_dropped_pages_leaves_a_hole(disk: SimDisk, model: Model) -> None:
    failed_sync(disk)
    handle = disk.open_append("/w/log")
    handle.append(b"three\n")
    handle.sync()
    found = contents(disk, model)
    assert found >= {b"one\n\0\0\0\0three\n", b"one\ntwo\nthree\n"}
    assert all(isinstance(data, bytes) and data.endswith(b"three\n") for data in found)


@each_model
def test_only_the_part_that_was_written_again_is_saved(disk: SimDisk, model: Model) -> None:
    failed_sync(disk)
    disk.rewrite("/w/log", 5, b"w")
    disk.sync_file("/w/log")
    found = contents(disk, model)
    assert found >= {b"one\n\0w", b"one\n\0wo\n", b"one\ntw"}
    assert all(isinstance(data, bytes) and data[5:6] == b"w" for data in found)


def test_a_failed_sync_of_a_directory_leaves_the_names_waiting(disk: SimDisk) -> None:
    disk.fail(lambda op: op.kind == "sync_dir", errno.EIO)
    with pytest.raises(StorageError):
        disk.unlink("/w/log", durable=True)
    assert contents(disk, "independent") == {None, b"one\n"}
    disk.sync_dir("/w")
    assert contents(disk, "independent") == {None}


# -------------------------------------------------------------------------------- how many, which


def busy(disk: SimDisk) -> SimDisk:
    for number in range(4):
        disk.replace(f"/w/d/{number}", bytes([number]) * 500, durable=False)
        disk.open_append("/w/log").append(b"x" * 100)
    return disk


@each_model
def test_few_choices_are_all_tried_and_no_two_alike(disk: SimDisk, model: Model) -> None:
    disk.replace("/w/f", b"abc", durable=False)
    count = choices_count(disk, model)
    trees = outcomes(disk, model, limit=count)
    assert len(trees) <= count
    keys = [tuple(tree.items()) for tree in trees]
    assert len({*keys}) == len(keys)
    assert len(outcomes(disk, model, limit=count * 10)) == len(trees)


@each_model
def test_many_choices_are_sampled_with_the_extremes_first(disk: SimDisk, model: Model) -> None:
    busy(disk)
    assert choices_count(disk, model) > 10**12
    trees = outcomes(disk, model, limit=100)
    assert len(trees) == 100
    everything = {path: data for path, data in disk.tree().items() if data is not None}
    assert trees[0] == {"/w/log": b"one\n"}
    assert trees[1] == dict(sorted(everything.items()))
    assert {*trees[2].values()} == {b"one\n", b""}, "names without bytes"
    assert trees[3] == {"/w/log": everything["/w/log"]}, "bytes without names"
    assert {*trees[4].values()} >= {bytes(500)}, "names with zeros"


@each_model
def test_the_same_chance_gives_the_same_states_in_the_same_order(
    disk: SimDisk, model: Model
) -> None:
    busy(disk)
    assert outcomes(disk, model, limit=60) == outcomes(disk, model, limit=60)


def test_each_state_tells_what_was_lost(disk: SimDisk) -> None:
    disk.write("/w/f", b"ab")
    stories = [left.story() for left in power_loss_states(disk, chance=Random(1))]
    assert "independent: names lost: create f" in stories
    assert "independent: names lost: none; f: 2 bytes at 0: lost" in stories
    assert any(story.endswith("f: 2 bytes at 0: short 1") for story in stories)
    assert disk.story() == ""
