"""The process that ``test_job_endings`` tells to end, in one of several situations.

``python -m tests.integration.job_ending_child DIRECTORY SITUATION``: says ``ready`` when it may be
told, and goes on when its standard input ends.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable

from perdure.jobs.job import CheckpointedJob
from perdure.jobs.records import Finding

MANY = 300
"""So many items make a state.json that does not follow every record."""


def say(text: str) -> None:
    print(text, flush=True)


def opened(directory: str) -> CheckpointedJob:
    """A job of which state.json lacks the last finding and the cursor."""
    job = CheckpointedJob(directory, "docs")
    job.record_many([Finding(str(number), {}) for number in range(MANY - 1)])
    job.record_finding("last")
    job.set_cursor("last")
    return job


def wait() -> None:
    sys.stdin.read()


def at_rest(directory: str) -> None:
    job = opened(directory)
    say("ready")
    wait()
    job.close()


def two_jobs(directory: str) -> None:
    jobs = [opened(f"{directory}/{name}") for name in ("one", "two")]
    say("ready")
    wait()
    for job in jobs:
        job.close()


def in_a_call(directory: str) -> None:
    """The signal arrives while the main thread is between the write of a finding and its sync."""
    job = opened(directory)
    log = job._engine.log
    append = log._append

    def told_meanwhile(data: bytes) -> None:
        append(data)
        os.kill(os.getpid(), signal.SIGTERM)

    log._append = told_meanwhile
    say("ready")
    job.record_finding("during")
    say("went on")


def in_close(directory: str) -> None:
    """The signal arrives while the main thread closes the only job."""
    job = opened(directory)
    log = job._engine.log
    close = log._close

    def told_meanwhile() -> None:
        close()
        os.kill(os.getpid(), signal.SIGTERM)

    log._close = told_meanwhile
    say("ready")
    job.close()
    say("went on")


def slow_thread(job: CheckpointedJob) -> tuple[threading.Thread, threading.Event]:
    """A thread that is in the middle of a call until the event is set."""
    log = job._engine.log
    append = log._append
    inside, go_on = threading.Event(), threading.Event()

    def slow(data: bytes) -> None:
        inside.set()
        go_on.wait()
        append(data)

    log._append = slow
    thread = threading.Thread(target=job.record_finding, args=("during",))
    thread.start()
    inside.wait()
    return thread, go_on


def in_a_call_of_a_thread(directory: str) -> None:
    job = opened(directory)
    thread, go_on = slow_thread(job)
    signal.raise_signal(signal.SIGTERM)
    say("ready")
    wait()
    go_on.set()
    thread.join()
    wait()
    say("went on")


def told_twice(directory: str) -> None:
    job = opened(directory)
    slow_thread(job)
    signal.raise_signal(signal.SIGTERM)
    say("ready")
    signal.raise_signal(signal.SIGTERM)
    say("went on")


def own_handler(directory: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    job = opened(directory)
    say("ready")
    wait()
    job.close()


def opened_in_a_thread(directory: str) -> None:
    thread = threading.Thread(target=opened, args=(directory,))
    thread.start()
    thread.join()
    say(str(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
    say("ready")
    wait()


def closed(directory: str) -> None:
    first, second = opened(f"{directory}/one"), opened(f"{directory}/two")
    first.close()
    say(str(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
    second.finish()
    say(str(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
    say("ready")
    wait()


def forked(directory: str) -> None:
    """A child is told to end, and does; the parent's job goes on."""
    job = opened(directory)
    pid = os.fork()
    if pid == 0:
        say(str(os.getpid()))
        say("ready")
        signal.pause()
        os._exit(3)
    _, status = os.waitpid(pid, 0)
    say(f"child {os.waitstatus_to_exitcode(status)}")
    job.record_finding("afterwards")
    job.close()


def forked_exit(directory: str) -> None:
    """A child runs its exit hooks, with a job that is not its own."""
    job = opened(directory)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    say("ready")
    job.record_finding("afterwards")
    job.close()


def forked_in_a_call(directory: str) -> None:
    """A child that was forked while a call was under way, with a job of its own."""
    job = opened(directory)
    log = job._engine.log
    append = log._append
    status = []

    def forking(data: bytes) -> None:
        pid = os.fork()
        if pid == 0:
            own = CheckpointedJob(f"{directory}/own", "own")
            signal.raise_signal(signal.SIGTERM)
            own.close()
            os._exit(3)
        status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        append(data)

    log._append = forking
    job.record_finding("during")
    job.close()
    say(f"child {status[0]}")


def runs_to_its_end(directory: str) -> None:
    globals()["kept"] = opened(directory)
    say("ready")


def ends_with_an_error(directory: str) -> None:
    job = opened(directory)
    say("ready")
    raise RuntimeError(job.name)


SITUATIONS: dict[str, Callable[[str], None]] = {
    situation.__name__: situation
    for situation in (
        at_rest, two_jobs, in_a_call, in_close, in_a_call_of_a_thread, told_twice, own_handler,
        opened_in_a_thread, closed, forked, forked_exit, forked_in_a_call, runs_to_its_end,
        ends_with_an_error,
    )
}  # fmt: skip

if __name__ == "__main__":
    SITUATIONS[sys.argv[2]](sys.argv[1])
