"""A sender of instructions: drops so many for each line that it reads, and says when it has.

``python -m tests.integration.sender_child WORKSPACE NAME``: a line of standard input is a number.
Each message is durable before the next one is made; the answers are left to whoever wants them.
"""

import sys

from perdure.runtime.world import real_world
from perdure.storage import spool
from perdure.storage.workspace import Layout


def main(workspace: str, name: str) -> None:
    world, layout = real_world(), Layout(workspace)
    sent = 0
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            sent += 1
            args = {"text": f"{name} says {sent}", "reading": "clarification"}
            message = spool.Message(
                f"{name}-{sent}", "steer", args, f"sponsor:{name}", world.clock.now()
            )
            spool.drop(world.disk, layout, message)
        print("sent", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
