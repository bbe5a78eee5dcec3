"""The process that ``test_sigkill`` kills: works on a task and ends itself at a chosen call.

``python -m tests.integration.sigkill_child WORKSPACE AT``: at system call number AT that changes
the disk it sends SIGKILL to itself, at a write after half of the bytes. 0 never does. Each time a
call of the runtime has returned it says how long the journal is, and its sha256: that much is
promised. At the end it says how many calls there were.
"""

import os
import signal
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import NoReturn, TypeVar

from tests.crash.disk import CountedOs, Fuse

from perdure.runtime.halt import HaltRuntime
from perdure.storage import disk as disk_module

T = TypeVar("T")


class SelfKill(Fuse):
    """Blows for real."""

    def pass_through(
        self, what: str, act: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        self.trace.append(what)
        if self.count == self.at:
            if half is not None:
                half()
            die()
        return act()


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end this process")


def work(root: str) -> None:
    def promise() -> None:
        with open(f"{root}/journal.jsonl", "rb") as file:
            data = file.read()
        say(f"ack {len(data)} {sha256(data).hexdigest()}")

    def write(path: str, text: str) -> None:
        os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
        with open(f"{root}/{path}", "w") as file:
            file.write(text)

    with HaltRuntime(root, "T", goal="be killed") as runtime:
        promise()
        with runtime.batch():
            runtime.add_node("N1", "first", outputs=["artifacts/N1/a.txt"], retry_budget=3)
            runtime.add_node("N2", "second", deps=["N1"])
        promise()
        runtime.move_task("EXECUTING")
        promise()
        runtime.start("N1")
        promise()
        write("artifacts/N1/a.txt", "not good")
        runtime.register_artifact("", "artifacts/N1/a.txt", node_id="N1")
        promise()
        runtime.fail("N1", "transient-agent", "not good")
        promise()
        runtime.start("N1")
        write("artifacts/N1/a.txt", "good")
        promise()
        runtime.submit("N1")
        promise()
    promise()
    with HaltRuntime.resume(root) as runtime:
        runtime.start("N2")
        write("artifacts/N2/deep/b.txt", "good")
        runtime.submit("N2")
        promise()
        runtime.steering("ST-1", "one more thing")
        promise()


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    fuse = SelfKill(int(sys.argv[2]))
    disk_module.os = CountedOs(fuse, really_sync=True)  # type: ignore[assignment]
    work(sys.argv[1])
    say(f"calls {fuse.count}")
