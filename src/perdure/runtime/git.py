"""Commits as evidence: asking git what it knows.

Invariants: only asks; a commit counts when git itself finds it in the repository that was named.
"""

import subprocess

from perdure.errors import EvidenceError


def find_commit(repo: str, revision: str) -> str:
    """The full id of the commit that ``revision`` names in ``repo``; empty when git finds none.

    Raises EvidenceError when there is no git to ask.
    """
    command = ["git", "-C", repo, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EvidenceError(
            f"git cannot be run: {error}.",
            code="git_missing",
            fix="Install git, or register a file instead.",
        ) from None
    return found.stdout.strip() if found.returncode == 0 else ""
