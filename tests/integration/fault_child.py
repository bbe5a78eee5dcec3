"""One of the processes of ``test_real_faults``: does what its standard input says, line by line.

``python -m tests.integration.fault_child WORKSPACE [UID]``: says ``ready``, and answers each line
with one of JSON. With UID it gives up its rights first, once everything it needs is imported.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import TypeVar

from tests.crash.disk import CountedOs, Fuse

from perdure.errors import HaltError
from perdure.runtime.halt import HaltRuntime
from perdure.storage import disk as disk_module

T = TypeVar("T")


class StopInAWrite(Fuse):
    """Stops this process when half of the next write is written."""

    def pass_through(
        self, what: str, act: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        if half is not None:
            half()
            os.kill(os.getpid(), signal.SIGSTOP)
        return act()


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


class Worker:
    """Holds the runtime between two lines."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.runtime: HaltRuntime | None = None

    def obey(self, line: str) -> object:
        what, _, rest = line.partition(" ")
        if what == "coordinate":
            self.runtime = HaltRuntime.resume(self.root, actor=f"coordinator:{os.getpid()}")
            return "coordinates"
        if what == "append":
            self.append(*rest.split())
            return "appended"
        runtime = self.runtime
        assert runtime is not None
        if what == "note":
            return {"committed": runtime.note(rest).ref}
        if what == "start":
            return {"committed": runtime.start(rest).ref}
        if what == "stop-in-a-commit":
            disk_module.os = CountedOs(StopInAWrite())  # type: ignore[assignment]
            return runtime.note("half of this").ref
        assert what == "close"
        runtime.close()
        return "closed"

    def append(self, name: str, count: str) -> None:
        """Short commands, one after the other; each is told once it is acknowledged."""
        runtime = HaltRuntime.attach(self.root, actor=f"executor:{name}")
        for number in range(int(count)):
            runtime.note(f"{name}-{number}", op=f"{name}-{number}")
            say(f"{name}-{number}")


def give_up_rights(uid: int) -> None:
    """Become this user, after a first use of everything that may be imported late."""
    with tempfile.TemporaryDirectory() as scratch, HaltRuntime(f"{scratch}/w", "T") as runtime:
        runtime.add_node("N1", "one", outputs=["artifacts/N1/a.txt"])
        runtime.start("N1")
        with open(f"{scratch}/w/artifacts/N1/a.txt", "w") as file:
            file.write("a")
        runtime.submit("N1")
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def main(root: str, uid: int | None) -> None:
    if uid is not None:
        give_up_rights(uid)
    worker = Worker(root)
    say("ready")
    for line in sys.stdin:
        try:
            say(worker.obey(line.strip()))
        except HaltError as error:
            say({"refused": error.code, "exit_code": error.exit_code, "text": str(error)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
