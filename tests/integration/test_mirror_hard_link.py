"""A mirror that is the journal by another name, as tools that save space by hard links make it."""

import os
from pathlib import Path

import pytest
from tests.integration.shell import call


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    where = tmp_path / "w"
    assert call("init", "T1", "--tier", "2", "-C", str(where)).code == 0
    assert call("note", "before", "-C", str(where)).code == 0
    (where / "journal-mirror.jsonl").unlink()
    os.link(where / "journal.jsonl", where / "journal-mirror.jsonl")
    return where


def both(where: Path) -> tuple[bytes, bytes]:
    return (where / "journal.jsonl").read_bytes(), (where / "journal-mirror.jsonl").read_bytes()


def test_one_copy_is_told_and_nothing_is_written_to_it(linked: Path) -> None:
    before = both(linked)
    told = call("verify", "-C", str(linked))
    assert told.code == 6
    assert "hard link" in told.out + told.err
    assert call("audit", "--item", "A4.1", "-C", str(linked)).code == 1
    refused = call("note", "after", "-C", str(linked))
    assert refused.code == 6
    assert "perdure resume" in refused.err
    assert both(linked) == before


def test_resume_makes_two_of_it(linked: Path) -> None:
    before = both(linked)[0]
    told = call("resume", "-C", str(linked))
    assert "hard link" in told.out
    journal, mirror = both(linked)
    assert journal.startswith(before)
    assert journal == mirror
    assert not os.path.samefile(linked / "journal.jsonl", linked / "journal-mirror.jsonl")
    assert call("note", "after", "-C", str(linked)).code == 0
    assert call("verify", "-C", str(linked)).code == 0
    journal, mirror = both(linked)
    assert journal == mirror
