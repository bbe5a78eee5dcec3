"""Which items have come by: in one loop over them, or in one reading of a log.

Job: remember hashes of items, any number of them, and tell the new from the old. Invariants: what
was added is known for good; a hash takes 12 to 24 bytes, where a set would take some hundred. It
holds no keys, and knows two of one hash as one, as the job itself does.
"""

from array import array
from typing import Final

slots_first: Final = 1_024


class SeenHashes:
    """A table with open addressing in one array; a hash is spread well enough to be its place."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * slots_first))
        self._count = 0

    def add(self, digest: str) -> bool:
        """False when it was there already."""
        value = int(digest, 16) or 1  # 0 is a free slot
        slots = self._slots
        mask = len(slots) - 1
        place = value & mask
        while slot := slots[place]:
            if slot == value:
                return False
            place = (place + 1) & mask
        slots[place] = value
        self._count += 1
        if 3 * self._count > 2 * mask:
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._slots
        self._slots = slots = array("Q", bytes(2 * 8 * len(old)))
        mask = len(slots) - 1
        for value in old:
            if value:
                place = value & mask
                while slots[place]:
                    place = (place + 1) & mask
                slots[place] = value
