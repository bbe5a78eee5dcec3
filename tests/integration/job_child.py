"""One of the processes of ``test_job_faults``: works on a job as its standard input says.

``python -m tests.integration.job_child JOB [UID]`` says ``ready`` and answers each line with one of
JSON. With UID it gives up its rights first, once everything it needs is imported.

``python -m tests.integration.job_child JOB --kill-at N`` does a fixed piece of work and sends
SIGKILL to itself at system call number N that changes the disk, at a write after half of the
bytes; 0 never does. What was promised it says as it goes, and at the end how many calls there were.
"""

import json
import os
import sys
import tempfile

from tests.crash.disk import CountedOs
from tests.integration.sigkill_child import SelfKill

from perdure import CheckpointedJob
from perdure.errors import HaltError
from perdure.jobs.records import Failure, Finding
from perdure.storage import disk as disk_module

NAME = "faults"


def say(what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


class Worker:
    """Holds the job between two lines."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._job: CheckpointedJob | None = None

    @property
    def job(self) -> CheckpointedJob:
        assert self._job is not None
        return self._job

    def obey(self, line: str) -> object:
        what, _, rest = line.partition(" ")
        if what == "open":
            self._job = CheckpointedJob(self.directory, rest or NAME)
            return {"opened": self.job.processed}
        if what == "record":
            return {"recorded": self.job.record_finding(rest, {"text": "x" * 100})}
        if what == "fail":
            return {"attempts": self.job.record_error(rest, "no answer")}
        if what == "many":
            prefix, count = rest.split()
            for number in range(int(count)):
                self.job.record_finding(f"{prefix}-{number}", {"number": number})
                say(f"{prefix}-{number}")
            return "recorded"
        if what == "fork":
            return self.fork()
        assert what == "close"
        self.job.close()
        return "closed"

    def fork(self) -> object:
        """A forked child tries to record, closes its copy and ends with all its exit hooks."""
        child = os.fork()
        if child == 0:
            try:
                self.job.record_finding("by the child", {})
            except HaltError as error:
                say({"refused": error.code, "exit_code": error.exit_code})
            self.job.close()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        return {"child": os.waitstatus_to_exitcode(status)}


def give_up_rights(uid: int) -> None:
    """Become this user, after a first use of everything that may be imported late."""
    with tempfile.TemporaryDirectory() as scratch, CheckpointedJob(f"{scratch}/j", NAME) as job:
        job.record_finding("a", {})
        job.record_error("b", "no answer")
        job.finish()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def listen(directory: str, uid: int | None) -> None:
    if uid is not None:
        give_up_rights(uid)
    worker = Worker(directory)
    say("ready")
    for line in sys.stdin:
        try:
            say(worker.obey(line.strip()))
        except HaltError as error:
            say({"refused": error.code, "exit_code": error.exit_code, "text": str(error)})


def work(directory: str) -> None:
    """Everything a job does, each promise said when it is given; the same again does no harm."""
    with CheckpointedJob(directory, NAME) as job:
        for key in ("a-0", "a-1", "a-2"):
            job.record_finding(key, {"text": f"of {key}"})
            say({"done": key})
        job.set_cursor({"last": "a-2"})
        say({"attempts": {"b-0": job.record_error("b-0", "no answer")}})
        job.record_many(
            [Finding("c-0", {"text": "of c-0"}), Failure("c-1", "late"), Finding("c-2", {})]
        )
        say({"done": "c-0"})
        say({"done": "c-2"})
        job.write_artifact("d-0", b"in a file of its own", ".txt")
        job.record_finding("d-0", {"text": "of d-0"})
        say({"done": "d-0"})
        job.checkpoint()
    with CheckpointedJob(directory, NAME) as job:
        for key in ("b-0", "c-1", "e-0"):
            job.record_finding(key, {"text": f"of {key}"})
            say({"done": key})
        job.finish()


KEYS = ("a-0", "a-1", "a-2", "b-0", "c-0", "c-1", "c-2", "d-0", "e-0")
"""Every item of ``work``."""


def main() -> None:
    directory, *rest = sys.argv[1:]
    if rest[:1] == ["--kill-at"]:
        fuse = SelfKill(int(rest[1]))
        disk_module.os = CountedOs(fuse, really_sync=True)  # type: ignore[assignment]
        work(directory)
        say({"calls": fuse.count})
    else:
        listen(directory, int(rest[0]) if rest else None)


if __name__ == "__main__":
    main()
