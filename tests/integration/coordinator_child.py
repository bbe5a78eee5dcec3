"""A coordinator that holds the lease and does what its standard input says.

``python -m tests.integration.coordinator_child WORKSPACE``: says ``ready`` once it coordinates.
``work`` lets it take messages in until the next line comes; ``stand still`` lets it do nothing. It
gives the lease back when its input ends.
"""

import select
import sys

from perdure.runtime.halt import HaltRuntime


def main(workspace: str) -> None:
    with HaltRuntime(workspace, "T1", actor="coordinator:other") as runtime:
        print("ready", flush=True)
        working = False
        while True:
            heard, _, _ = select.select([sys.stdin], [], [], 0.01 if working else None)
            if heard:
                line = sys.stdin.readline()
                if not line:
                    return
                working = line.strip() == "work"
                print("heard", flush=True)
            if working:
                runtime.engine.tick()


if __name__ == "__main__":
    main(sys.argv[1])
