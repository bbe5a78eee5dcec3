"""One of several processes that a field case sets upon a workspace at once.

``python -m tests.integration.field_child WHAT WORKSPACE NAME [COUNT]``: says ``ready`` when the
workspace is open, and begins when it reads a line. What it has to tell is one line of JSON.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from perdure.errors import HaltError
from perdure.runtime.halt import HaltRuntime


def wait_for_the_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def append(root: str, name: str, count: int) -> object:
    """Write notes, one in ten of them 64 KB long."""
    runtime = HaltRuntime.attach(root, actor=f"executor:{name}")
    wait_for_the_start()
    for number in range(count):
        runtime.note(f"{name}-{number} ".ljust(65_536 if number % 10 == 0 else 100, "x"))
    return None


def update(root: str, name: str, count: int) -> object:
    """Change one's own node again and again."""
    runtime = HaltRuntime.attach(root, actor=f"coordinator:{name}")
    wait_for_the_start()
    for number in range(1, count + 1):
        runtime.amend_node(name, "another round", priority=number)
    return None


def claim(root: str, name: str, count: int) -> object:
    """Try to start the one node there is."""
    runtime = HaltRuntime.attach(root, actor=f"executor:{name}")
    wait_for_the_start()
    runtime.start("N1", session=True)
    return "started"


def coordinate(root: str, name: str, count: int) -> object:
    """Resume, and hold on until told to end."""
    wait_for_the_start()
    with HaltRuntime.resume(root, actor=f"coordinator:{name}") as runtime:
        print(json.dumps({"resumed": runtime.recovered.committed}), flush=True)
        sys.stdin.readline()
    return None


def fork(root: str, name: str, count: int) -> object:
    """Coordinate, with a forked child that closes its copy of the runtime and ends."""
    wait_for_the_start()
    runtime = HaltRuntime.resume(root)
    runtime.note("before the fork")
    child = os.fork()
    if child == 0:
        runtime.close()
        os._exit(0)
    os.waitpid(child, 0)
    runtime.note("after the child has closed")
    held = runtime.engine.lease_file.is_current(runtime.engine.epoch)
    return {"held": held, "epoch": runtime.engine.epoch}


def measure(root: str, name: str, count: int) -> object:
    """Open and look; tell how much memory that took, in bytes."""
    wait_for_the_start()
    before = peak_bytes()
    runtime = HaltRuntime.attach(root)
    status = runtime.status()
    return {"seq": status["seq_last"], "before": before, "peak": peak_bytes()}


def peak_bytes() -> int:
    """Of this program alone: on Linux, what getrusage says begins with its parent's size."""
    if sys.platform == "linux":
        with open("/proc/self/status", encoding="ascii") as file:
            (line,) = (line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


JOBS: dict[str, Callable[[str, str, int], object]] = {
    "append": append,
    "update": update,
    "claim": claim,
    "coordinate": coordinate,
    "fork": fork,
    "measure": measure,
}


def main() -> int:
    what, root, name, *rest = sys.argv[1:]
    answer: Any
    try:
        answer = JOBS[what](root, name, int(rest[0]) if rest else 0)
    except HaltError as error:
        answer = {**error.as_dict(), "text": str(error)}
        print(json.dumps(answer), flush=True)
        return error.exit_code
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
