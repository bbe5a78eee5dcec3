"""Where the scratch directory is made, and that removing it takes nothing else."""

from pathlib import Path

import pytest

from perdure.errors import StorageError
from perdure.selftest.scratch import lay_out, parent_of_scratch, read_tree, remove_tree
from perdure.storage.disk import RealDisk

DISK = RealDisk()


def test_it_is_in_the_project_above_else_here(tmp_path: Path) -> None:
    here = tmp_path / "project" / "deep"
    here.mkdir(parents=True)
    assert parent_of_scratch(DISK, None, str(here)) == str(here)
    (tmp_path / "project" / ".perdure").mkdir()
    assert parent_of_scratch(DISK, None, str(here)) == str(tmp_path / "project" / ".perdure")


def test_a_named_directory_is_relative_to_the_current_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    assert parent_of_scratch(DISK, "disk", str(tmp_path)) == str(tmp_path / "disk")


def test_a_file_or_nothing_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "nothing"):
        with pytest.raises(StorageError) as refusal:
            parent_of_scratch(DISK, name, str(tmp_path))
        assert refusal.value.code == "no_directory"


def test_a_tree_is_laid_out_read_and_removed(tmp_path: Path) -> None:
    root = str(tmp_path / "tree")
    tree = {"a": b"1", "deep/down/b": b"2"}
    lay_out(DISK, root, tree)
    assert read_tree(DISK, root) == tree
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    remove_tree(DISK, root)
    remove_tree(DISK, root)
    assert [path.name for path in tmp_path.rglob("*")] == ["outside", "kept"]
