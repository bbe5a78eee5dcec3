"""Pages of the documentation that come with the package.

Job: find a page by its name, in an installation or beside the source. Invariants: never reads
anything but the pages of this version.
"""

from typing import Any, Final

from perdure.core.late import LateModule
from perdure.errors import NotFoundError

_resources: Final = LateModule("importlib.resources")
_PACKAGE: Final = "perdure"


def read_page(name: str) -> str:
    """The text of a page, such as ``protocol.md``. Raises NotFoundError where it is not there."""
    for directory in _places():
        page = directory / name
        if page.is_file():
            return str(page.read_text(encoding="utf-8"))
    raise NotFoundError(
        f"the page {name} did not come with this installation.",
        code="unknown_page",
        fix="Install perdure from its wheel or its source, which bring it.",
    )


def _places() -> tuple[Any, ...]:
    """Where a wheel puts the pages, then where a checkout has them."""
    package = _resources.files(_PACKAGE)
    return (package / "docs", package / ".." / ".." / "docs")
