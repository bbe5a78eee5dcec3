"""Fetch one page and say what it is, as a line of JSON.

    python fetch.py URL [--timeout SECONDS]

Exit code 1 and the reason on standard error when the service has no good answer. It tries once:
whoever runs it decides whether and when to try again.
"""

import argparse
import hashlib
import json
import sys
import urllib.error
import urllib.request
from typing import Any

# The service is on this machine; a proxy that the surroundings ask for would not find it.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswerError(Exception):
    """The service did not give the page this time."""


def fetch(url: str, timeout_s: float = 10.0) -> dict[str, Any]:
    """The finding of a page. Raises NoAnswerError, also when time is up."""
    try:
        with OPENER.open(url, timeout=timeout_s) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        raise NoAnswerError(f"{error.code} {error.reason}") from error
    except OSError as error:  # refused, reset, or too slow
        raise NoAnswerError(f"no answer: {error}") from error
    page = json.loads(body)
    return {
        "page": page["page"],
        "receipt": page["receipt"],
        "words": len(page["text"].split()),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }


def main() -> int:
    """Fetch the page named on the command line."""
    parser = argparse.ArgumentParser(description="Fetch one page.")
    parser.add_argument("url")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    options = parser.parse_args()
    try:
        print(json.dumps(fetch(options.url, options.timeout)))
    except NoAnswerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
