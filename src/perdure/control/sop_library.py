"""Where cards lie, and how one is found, read with its files, and copied into an instance.

Job: the places of cards (of a workspace, of a project, those that ship with perdure), versions, and
the copy that an instance runs from. Invariants: the first place that has a version wins; a card
that cannot be read never hides behind another one of its name; a copy counts as complete only with
its ``card.yaml``, which is written last. Never: runs anything.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from perdure.control.sop_card import CARD_ENDINGS, CARD_NAME, Card, is_path
from perdure.control.sop_graph import SOPS
from perdure.control.sop_reader import VERSION, card_bytes_max, load_card
from perdure.core.lookup import near
from perdure.core.model import id_key
from perdure.errors import CardError, HaltError, NotFoundError, StorageError, UsageError
from perdure.ports import Disk
from perdure.storage.workspace import find_project

SHIPPED: Final = posixpath.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), SOPS)
"""The cards that come with perdure."""

file_bytes_max: Final = 1 << 20
cards_max: Final = 1_000
"""Cards that are looked at in one place."""

_VERSION_WISH: Final = re.compile(r"(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8}))?\Z")


class FoundCard(NamedTuple):
    """A card with everything that belongs to it."""

    card: Card
    data: bytes
    """The bytes of the card."""
    path: str
    """Absolute."""
    files: dict[str, bytes]
    """Its files by their names beside it."""

    @property
    def sha256(self) -> str:
        """Of the card and of its files together, in hex."""
        total = hashlib.sha256(hashlib.sha256(self.data).digest())
        for name in sorted(self.files):
            total.update(name.encode() + b"\0" + hashlib.sha256(self.files[name]).digest())
        return total.hexdigest()


class ListedCard(NamedTuple):
    """One card that lies in a place, or why it is none."""

    path: str
    card: Card | None
    problem: CardError | None = None
    claims: str = ""
    """The id that a card that cannot be used says it has."""


def card_places(disk: Disk, *, workspace: str | None, start_dir: str) -> tuple[str, ...]:
    """Where cards are looked for, the first first: the workspace, the project, those shipped."""
    project = find_project(disk, start_dir)
    return (
        *([f"{workspace}/{SOPS}"] if workspace else []),
        *([f"{project}/{SOPS}"] if project else []),
        SHIPPED,
    )


def find_card(
    ref: str, version: str = "", *, disk: Disk, places: Sequence[str], directory: str = ""
) -> FoundCard:
    """The card that ``ref`` means, with its files.

    ``ref`` is an id, or a path (with a ``/`` or an ending of YAML) relative to ``directory``. No
    version is the newest, releases before what comes before them; ``1`` or ``1.2`` is the newest of
    those. Raises NotFoundError ``sop_unknown``, CardError, UsageError for a version that is none.
    """
    if version and not (VERSION.match(version) or _VERSION_WISH.match(version)):
        raise UsageError(
            f"{version!r} is no version of a card.",
            code="sop_bad_version",
            rule="SC-3",
            fix="Write 1.2.0, or 1.2 or 1 for the newest of those, or leave it out.",
        )
    if is_path(ref):
        found = read_card(posixpath.normpath(posixpath.join(directory, ref)), disk=disk)
        if version and not _fits(found.card.version, version):
            raise _unknown(ref, version, [found.card.version])
        return found
    listed = list_cards(disk, places)
    for one in listed:
        if one.problem is not None and one.claims == ref:
            raise one.problem
    cards = [one for one in listed if one.card is not None and one.card.sop_id == ref]
    fitting = [one for one in cards if one.card is not None and _fits(one.card.version, version)]
    if not fitting:
        ids = sorted({one.card.sop_id for one in listed if one.card is not None})
        versions = [one.card.version for one in cards if one.card is not None]
        raise _unknown(ref, version, versions, near(ref, ids))
    best = max(fitting, key=lambda one: _choice(one.card.version if one.card else ""))
    return read_card(best.path, disk=disk)


def list_cards(disk: Disk, places: Sequence[str]) -> list[ListedCard]:
    """Every card of the places, in their order; what cannot be used comes with the reason."""
    return [_listed(disk, path) for place in places for path in _card_paths(disk, place)]


def read_card(path: str, *, disk: Disk) -> FoundCard:
    """The card at an absolute path; of a directory its ``card.yaml``.

    Raises NotFoundError ``sop_unknown``, CardError, StorageError.
    """
    seen = disk.stat(disk.real_path(path))
    if seen is not None and seen.kind == "dir":
        path = posixpath.join(path, CARD_NAME)
        seen = disk.stat(disk.real_path(path))
    if seen is None:
        raise NotFoundError(
            f"there is no card {path}.",
            code="sop_unknown",
            fix="Name a card by its path, or by an id that `perdure sop list` shows.",
        )
    if seen.kind != "file":
        raise NotFoundError(
            f"{path} is no file, so it is no card.",
            code="sop_unknown",
            fix="Name a card by its path, or by an id that `perdure sop list` shows.",
        )
    data = disk.read(disk.real_path(path), length=card_bytes_max + 1)
    card = load_card(path, data)
    files = {name: _read_file(disk, path, name) for name in card.files}
    return FoundCard(card, data, path, files)


def install_card(found: FoundCard, *, disk: Disk, workspace: str) -> str:
    """Copy a card and its files into a workspace; the directory of the copy, relative to it.

    Durable on return and repeatable. A crash in the middle leaves files without their card, which
    count for nothing. Raises StorageError.
    """
    relative = posixpath.join(SOPS, found.card.directory_name)
    target = posixpath.join(workspace, relative)
    disk.make_dirs(target)
    for name, data in {**found.files, CARD_NAME: found.data}.items():
        path = posixpath.join(target, name)
        disk.make_dirs(posixpath.dirname(path))
        if disk.stat(path) is None or disk.read(path) != data:
            disk.replace(path, data, durable=True)
    return relative


def installed_card(sop_id: str, version: str, *, disk: Disk, workspace: str) -> FoundCard:
    """The copy that an instance in this workspace runs from. Raises as :func:`read_card`."""
    return read_card(posixpath.join(workspace, SOPS, f"{sop_id}-{version}", CARD_NAME), disk=disk)


def version_key(version: str) -> tuple[object, ...]:
    """Orders semantic versions; what comes before a release is older than the release."""
    core, _, rest = version.partition("+")[0].partition("-")
    numbers = tuple(int(part) if part.isdecimal() else -1 for part in core.split("."))
    return (numbers, not rest, id_key(rest))


def _choice(version: str) -> tuple[object, ...]:
    """A release before what only leads up to one; of these the newest."""
    return ("-" not in version.partition("+")[0], version_key(version))


def _fits(version: str, wish: str) -> bool:
    return not wish or version == wish or version.startswith(f"{wish}.")


def _unknown(ref: str, version: str, known: list[str], close: Sequence[str] = ()) -> HaltError:
    if known:
        versions = ", ".join(sorted(set(known), key=version_key))
        return NotFoundError(
            f"there is no version {version} of the card {ref}; there is {versions}.",
            code="sop_unknown",
            rule="SC-3",
            fix="Name one of them, or leave the version out.",
        )
    return NotFoundError(
        f"there is no card {ref!r}.",
        code="sop_unknown",
        fix="`perdure sop list` shows the cards; name one by its id, or by its path.",
        suggestions=close,
    )


def _card_paths(disk: Disk, place: str) -> Iterator[str]:
    """The cards of a place: YAML files in it, and ``card.yaml`` of the directories in it."""
    seen = 0
    for name in disk.list_dir(place):
        path = posixpath.join(place, name)
        inner = posixpath.join(path, CARD_NAME)
        stat = disk.stat(disk.real_path(path))
        if stat is None or name.startswith("."):
            continue
        if stat.kind == "file" and name.endswith(CARD_ENDINGS):
            yield path
        elif stat.kind == "dir" and disk.stat(disk.real_path(inner)) is not None:
            yield inner
        else:
            continue
        seen += 1
        if seen >= cards_max:
            return


def _listed(disk: Disk, path: str) -> ListedCard:
    try:
        data = disk.read(disk.real_path(path), length=card_bytes_max + 1)
    except StorageError as error:
        unread = CardError(
            f"{path} cannot be read: {error.message}", fix="Make it readable, or take it away."
        )
        return ListedCard(path, None, unread)
    try:
        return ListedCard(path, load_card(path, data))
    except CardError as error:
        claim = re.search(rb"^sop_id:\s*[\"']?([\w.-]+)", data, re.MULTILINE)
        return ListedCard(path, None, error, claim[1].decode() if claim else "")


def _read_file(disk: Disk, card_path: str, name: str) -> bytes:
    path = posixpath.join(posixpath.dirname(card_path), name)
    real = disk.real_path(path)
    seen = disk.stat(real)
    if seen is None or seen.kind != "file":
        raise CardError(
            f"{card_path} names the file {name}, which is not beside it.",
            code="sop_file_missing",
            rule="SC-3",
            fix="Put it there, or take it out of files.",
        )
    if seen.size_bytes > file_bytes_max:
        raise CardError(
            f"{path} has {seen.size_bytes} bytes; {file_bytes_max} is the most for a card's file.",
            code="sop_file_missing",
            rule="SC-3",
            fix="Keep large data outside the card, and name it with an input.",
        )
    return disk.read(real)
