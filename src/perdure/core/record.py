"""The base of every typed record.

Job: let a record be read like the JSON it is written as. Invariants: it adds no field and no
behaviour besides.
"""

from typing import Any


class Record:
    """Lets a typed record be read like the JSON it is written as: ``record["field"]``."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if key in self.__struct_fields__:  # type: ignore[attr-defined]
            return getattr(self, key)
        raise KeyError(key)
