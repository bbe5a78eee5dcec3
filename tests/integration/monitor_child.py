"""A ``perdure monitor`` that ends itself at a chosen call: ``AT ARGUMENTS...``.

At system call number AT that changes the disk it sends SIGKILL to itself, at a write after half of
the bytes; 0 never does. At the end it says how many calls there were.
"""

import os
import sys

from tests.crash.disk import CountedOs
from tests.integration.sigkill_child import SelfKill, say

from perdure.interfaces.cli import main
from perdure.storage import disk as disk_module

if __name__ == "__main__":
    fuse = SelfKill(int(sys.argv[1]))
    disk_module.os = CountedOs(fuse, really_sync=True)  # type: ignore[assignment]
    code = main(sys.argv[2:])
    say(f"calls {fuse.count}")
    os._exit(code)
