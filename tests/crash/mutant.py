"""What a mutant is: one edit of the sources, and the tests that are to notice it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One edit, and who is to notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files of tests."""
    only: str = ""
    """As pytest's ``-k``."""
