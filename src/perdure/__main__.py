"""``python -m perdure`` and the ``perdure`` script: the command line.

Never parses or decides anything itself.
"""

import sys

from perdure.interfaces.cli import main

if __name__ == "__main__":
    sys.exit(main())
