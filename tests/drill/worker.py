"""A worker of the fault drill: does its units, or one of the things that workers do instead.

It is a program like any other that gets a contract: it reads ``PERDURE_CONTRACT`` and writes below
``PERDURE_SCOPE``, and knows nothing else of who sent it. What it does follows from DRILL_SEED, its
invocation and how many were sent before it; what it did stands in DRILL_TRUTH.
"""

import json
import math
import os
import random
import signal
import sys
import time

death_rate_most = 0.75
BEHAVIOURS = ("killed", "hang", "silent", "half", "late", "environment", "failed")
ON_THE_WAY = ("outside", "leftover", "calm", "calm", "calm")


def main() -> None:
    """Read the contract, draw what happens, and let it happen."""
    with open(os.environ["PERDURE_CONTRACT"], encoding="utf-8") as file:
        contract = json.load(file)
    invocation = os.environ["PERDURE_INVOCATION"]
    units = [str(unit["key"]) for unit in contract["units"]["keys"]]
    number = arrive(invocation)
    dice = random.Random(f"{os.environ['DRILL_SEED']}:{invocation}:{number}")
    period = int(os.environ["DRILL_PERIOD"])
    rate = death_rate_most * (0.5 + 0.5 * math.cos(2 * math.pi * number / period))
    behaviour = dice.choice(BEHAVIOURS if dice.random() < rate else ON_THE_WAY)
    tell({"invocation": invocation, "behaviour": behaviour, "units": units})
    Worker(os.environ["PERDURE_SCOPE"], units, dice).act(behaviour)


def arrive(invocation: str) -> int:
    """How many workers came before; one line in the list of arrivals for this one."""
    path = os.environ["DRILL_TRUTH"] + ".arrivals"
    with open(path, "ab", buffering=0) as file:
        file.write(f"{invocation}\n".encode())
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def tell(what: dict[str, object]) -> None:
    """One line of truth; a line of this size is written whole."""
    with open(os.environ["DRILL_TRUTH"], "ab", buffering=0) as file:
        file.write(json.dumps(what).encode() + b"\n")


class Worker:
    """Does units in a directory of its own."""

    def __init__(self, scope: str, units: list[str], dice: random.Random) -> None:
        self.findings = os.path.join(scope, "findings.jsonl")
        self.ledger = os.path.join(scope, "ledger.jsonl")
        self.units = units
        self.dice = dice
        os.makedirs(scope, exist_ok=True)

    def act(self, behaviour: str) -> None:
        """Do all units, or what the name says."""
        some = self.dice.randrange(len(self.units) + 1)
        if behaviour == "silent":
            return
        if behaviour in ("killed", "half", "hang", "failed"):
            self.do(self.units[:some])
        if behaviour == "environment":
            print("error: 429 Too Many Requests", file=sys.stderr, flush=True)
            raise SystemExit(75)
        if behaviour == "failed":
            raise SystemExit(3)
        if behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "half":
            self.write_half(self.units[-1])
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "hang":
            signal.pause()
        if behaviour == "late":
            self.come_back_late()
            return
        if behaviour == "outside":
            self.write_outside()
        if behaviour == "leftover":
            leave_something_running()
        self.do(self.units)

    def do(self, units: list[str]) -> None:
        """A finding, and then the mark of each unit."""
        for unit in units:
            append(self.findings, {"_key": unit, "value": int(unit.rpartition("-")[2]) ** 2})
            append(self.ledger, {"unit_id": unit, "status": "ok"})

    def write_half(self, unit: str) -> None:
        """A line that was never finished, with its mark."""
        with open(self.findings, "ab", buffering=0) as file:
            file.write(b'{"_key": "' + unit.encode())
        append(self.ledger, {"unit_id": unit, "status": "ok"})

    def write_outside(self) -> None:
        """Try what no contract grants, and tell how it went."""
        workspace = os.environ["PERDURE_WORKSPACE"]
        told = {}
        for name in ("journal.jsonl", "artifacts/registry.json", "stray"):
            try:
                with open(os.path.join(workspace, name), "ab", buffering=0) as file:
                    told[name] = "opened"
                    if name == "stray":
                        file.write(b"stray")
            except OSError as error:
                told[name] = str(error.errno)
        tell({"outside": told})

    def come_back_late(self) -> None:
        """End at once and let somebody nobody knows do the work afterwards."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for descriptor in range(3):
                    os.close(descriptor)
                program = [sys.executable, os.path.abspath(__file__), "late", self.findings]
                os.execve(sys.executable, [*program, self.ledger, *self.units], {})
            os._exit(0)


def late(findings: str, ledger: str, units: list[str]) -> None:
    """Without a name, a parent or an environment: do the units after a while."""
    time.sleep(0.3)
    worker = Worker(os.path.dirname(findings), units, random.Random(0))
    worker.findings, worker.ledger = findings, ledger
    worker.do(units)


def append(path: str, line: dict[str, object]) -> None:
    """One whole line in one write."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def leave_something_running() -> None:
    """A process in a session of its own that outlives its worker."""
    if os.fork() == 0:
        os.setsid()
        for descriptor in range(3):
            os.close(descriptor)
        os.execvp("sleep", ["sleep", "3600"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["late"]:
        late(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main()
