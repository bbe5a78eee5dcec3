"""``python -m perdure`` and the ``perdure`` script: the command line, as a process of its own.

Job: start it fast and end it fast. Agents make a call at every step, so half of what a short
command takes is start and end of the interpreter. Never parses or decides anything itself.
"""

import gc
import os
import sys
from importlib import import_module
from typing import Final, NoReturn

collect_after_objects: Final = 100_000
"""Nothing is garbage while modules are loaded, so collecting then is time lost."""
interrupted_code: Final = 130


def main() -> NoReturn:
    """Run one call of the command line and end the process with its exit code."""
    gc.set_threshold(collect_after_objects, 20, 20)
    try:
        code: int = import_module("perdure.interfaces.cli").main()
    except KeyboardInterrupt:  # while modules were loaded, so nothing has been done
        code = interrupted_code
    # Every command has closed what it opened and flushed what it said, so there is nothing left
    # for the interpreter to do but to take itself apart, which the system does in no time.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
