"""What the processes of the job crash tests are killed in: one function for each way to use a job.

Each does its items as a program that resumes does: what is done is skipped. So it may be run again
after any death, by as many processes as it takes, and then has done each item once. Each is
repeatable byte for byte.
"""

from tests.crash.job_machine import AnyJobMachine, Caller

from perdure.jobs.records import Failure, Finding

attempts_max = 2
small_state_bytes_max = 1 << 10
"""In place of the real limit, so that a job of few items has a state.json that is not small."""
many = 24
"""So many items make one."""


def payload(number: int) -> dict[str, object]:
    return {"n": number, "text": f"what item {number} came to"}


def key(number: int) -> str:
    return f"https://archive.example/{number}"


def loop(machine: AnyJobMachine) -> None:
    """The loop of the contract: findings, a cursor, the end."""
    caller = Caller(machine)
    for number in range(4):
        if not caller.job.is_done(key(number)):
            caller.finding(key(number), payload(number))
        caller.cursor(number)
    caller.finish()


def loop_with_errors(machine: AnyJobMachine) -> None:
    """Some items fail for good, one succeeds when it is tried again."""
    caller = Caller(machine)
    for number in range(4):
        if caller.job.is_done(key(number)):
            continue
        if number % 2 and _attempts(caller, number) < attempts_max:
            caller.error(key(number), f"failure of {number}")
        elif not number % 2:
            caller.finding(key(number), payload(number))
        caller.cursor(number)
    for entry in caller.job.retryable(attempts_max + 1):
        if entry.key == key(1):
            caller.finding(entry.key, payload(1))
        else:
            caller.error(entry.key, "again")
    caller.close()


def _attempts(caller: Caller, number: int) -> int:
    return sum(entry.attempts for entry in caller.job.errors if entry.key == key(number))


def groups(machine: AnyJobMachine) -> None:
    """Outcomes that share an append, with one that fails among them."""
    caller = Caller(machine)
    for first in (0, 5):
        wanted = [n for n in range(first, first + 5) if not caller.job.is_done(key(n))]
        outcomes: list[Finding | Failure] = [Finding(key(n), payload(n)) for n in wanted]
        if _attempts(caller, first + 100) < attempts_max:
            outcomes.append(Failure(key(first + 100), "no answer"))
        caller.many(outcomes)
        caller.cursor(first + 4)
    caller.checkpoint()
    caller.close()


def large(machine: AnyJobMachine) -> None:
    """A job whose state.json is too large for every renewal: lines of its own keep the rest."""
    caller = Caller(machine)
    wanted = [n for n in range(many) if not caller.job.is_done(key(n))]
    caller.many([Finding(key(n), payload(n)) for n in wanted])
    caller.cursor(many - 1)
    caller.checkpoint()
    for number in range(many, many + 4):
        machine.advance(2.0)
        if not caller.job.is_done(key(number)):
            caller.finding(key(number), payload(number))
        caller.cursor(number)
        if _attempts(caller, 300) < attempts_max:
            caller.error(key(300), "no answer")
    caller.close()


def large_again(machine: AnyJobMachine) -> None:
    """The same with attempts before and after a checkpoint, by one process and by the next."""
    caller = Caller(machine)
    wanted = [n for n in range(many) if not caller.job.is_done(key(n))]
    caller.many([Finding(key(n), payload(n)) for n in wanted])
    for number in (300, 301):
        if _attempts(caller, number) < attempts_max:
            caller.error(key(number), "no answer")
    caller.checkpoint()
    caller.error(key(302), "no answer")
    second = Caller(machine)
    second.error(key(303), "no answer")
    machine.advance(2.0)
    second.cursor(many - 1)
    second.error(key(302), "no answer")
    second.reset(key(300))
    second.close()


def reopened(machine: AnyJobMachine) -> None:
    """Several objects, one after the other, the second while the first is still there."""
    first = Caller(machine)
    if not first.job.is_done(key(0)):
        first.finding(key(0), payload(0))
    first.cursor(0)
    second = Caller(machine)
    if not second.job.is_done(key(1)):
        second.finding(key(1), payload(1))
    second.finish()
    third = Caller(machine)
    third.cursor(1)
    third.close()


def side_files(machine: AnyJobMachine) -> None:
    """An item's own file is there before the finding that speaks of it."""
    caller = Caller(machine)
    for number in range(2):
        if not caller.job.is_done(key(number)):
            caller.side_file(key(number), b"%d" % number * 50)
            caller.finding(key(number), payload(number))
    caller.close()


ALL = (loop, loop_with_errors, groups, large, large_again, reopened, side_files)
