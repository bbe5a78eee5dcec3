"""A child writes where its contract grants it and nowhere else, as far as the kernel holds it."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.control import confinement
from perdure.control.confinement import Capability, Confinement, capability, start_confined
from perdure.errors import StorageError

needs_landlock = pytest.mark.skipif(not capability().writes, reason="this kernel has no Landlock")
needs_network_rules = pytest.mark.skipif(
    not capability().network, reason="Landlock of this kernel knows no network"
)

TRY = """
import os, sys
for path in sys.argv[1:]:
    try:
        open(path, "w").close()
        print("written")
    except OSError as error:
        print(error.errno)
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("connected")
except OSError as error:
    print(error.errno)
"""


def answers(held: Confinement | None, program: str, *words: object) -> list[str]:
    """What a child that is held so prints, word by word."""

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    child = start_confined(held, start)
    said, _ = child.communicate()
    assert child.returncode == 0
    return said.split()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A directory that is granted, and one that is not."""
    granted, other = tmp_path / "granted", tmp_path / "other"
    granted.mkdir()
    other.mkdir()
    (other / "old").write_text("old")
    return granted, other


@needs_landlock
def test_a_confined_child_writes_only_where_it_is_granted(places: tuple[Path, Path]) -> None:
    granted, other = places
    held = Confinement((str(granted),))
    said = answers(held, TRY, granted / "a", other / "b", other / "old", "/dev/null")
    assert said == ["written", str(errno.EACCES), str(errno.EACCES), "written"]
    assert (other / "old").read_text() == "old"


@pytest.mark.skipif(capability().abi < 3, reason="Landlock of this kernel knows no truncation")
def test_a_file_cannot_be_emptied_without_being_opened(places: tuple[Path, Path]) -> None:
    granted, other = places
    (granted / "old").write_text("old")
    program = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.truncate(path, 0)
        print("emptied")
    except OSError as error:
        print(error.errno)
"""
    held = Confinement((str(granted),))
    said = answers(held, program, granted / "old", other / "old")
    assert said == ["emptied", str(errno.EACCES)]
    assert (other / "old").read_text() == "old"


@needs_landlock
def test_a_granted_file_may_be_written_and_its_neighbours_not(places: tuple[Path, Path]) -> None:
    _, other = places
    held = Confinement((str(other / "old"),))
    assert answers(held, TRY, other / "old", other / "new") == ["written", str(errno.EACCES)]


@needs_landlock
def test_what_a_confined_child_starts_is_confined_as_well(places: tuple[Path, Path]) -> None:
    granted, other = places
    program = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', *sys.argv[1:]])"
    held = Confinement((str(granted),))
    assert answers(held, program, TRY, other / "b", granted / "a") == [
        str(errno.EACCES),
        "written",
    ]


@needs_landlock
def test_a_file_cannot_be_moved_out_of_or_into_what_is_granted(places: tuple[Path, Path]) -> None:
    granted, other = places
    (granted / "mine").write_text("mine")
    (granted / "deep").mkdir()
    program = """
import os, sys
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        os.rename(source, target)
        print("moved")
    except OSError as error:
        print(error.errno)
"""
    moves = [granted / "mine", other / "mine", other / "old", granted / "old"]
    moves += [granted / "mine", granted / "deep" / "mine"]
    said = answers(Confinement((str(granted),)), program, *moves)
    assert said[2] == "moved"
    assert {int(word) for word in said[:2]} <= {errno.EACCES, errno.EXDEV}
    assert (other / "old").exists()


@needs_landlock
def test_a_link_into_another_place_does_not_lead_out(places: tuple[Path, Path]) -> None:
    granted, other = places
    (granted / "way-out").symlink_to(other)
    held = Confinement((str(granted),))
    assert answers(held, TRY, granted / "way-out" / "b") == [str(errno.EACCES)]


@needs_landlock
def test_whoever_starts_a_confined_child_keeps_its_own_rights(places: tuple[Path, Path]) -> None:
    granted, other = places
    answers(Confinement((str(granted),)), TRY)
    (other / "still").write_text("free")
    assert answers(None, TRY, other / "b") == ["written"]


@needs_network_rules
def test_the_network_is_off_unless_it_is_granted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers(Confinement(), CONNECT, port) == [str(errno.EACCES)]
        assert answers(Confinement(network=True), CONNECT, port) == ["connected"]


@needs_landlock
def test_a_path_that_is_not_there_is_no_obstacle(places: tuple[Path, Path]) -> None:
    granted, _ = places
    held = Confinement((str(granted / "missing"), str(granted)))
    assert answers(held, TRY, granted / "a") == ["written"]


@needs_landlock
def test_what_cannot_be_started_is_the_callers_to_hear_of() -> None:
    with pytest.raises(FileNotFoundError):
        start_confined(Confinement(), lambda: subprocess.Popen(["/no/such/program"]))


@needs_landlock
def test_nothing_starts_when_the_kernel_refuses_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, *arguments: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    started = []
    capability()
    monkeypatch.setattr(confinement, "_syscall", refuse)
    with pytest.raises(StorageError, match="Confining a command"):
        start_confined(Confinement(), lambda: started.append(1))
    assert not started


def test_without_landlock_it_says_that_it_is_a_matter_of_policy() -> None:
    assert Capability(0).as_dict() == {
        "writes": "policy only",
        "network": "policy only",
        "abi": 0,
    }
    assert Capability(3).as_dict()["network"] == "policy only"
    assert Capability(4).as_dict()["network"] == "landlock (TCP)"
