"""Cards of procedures for whoever wants to see or use one: which there are, what one says, whether
one is good.

Job: find the places of cards from where somebody stands, and answer as data. Invariants: nothing is
written and no lock is taken; a card that cannot be used is listed with the reason, never left out.
"""

import os
from collections.abc import Mapping
from typing import Any

from perdure.control.sop_card import is_path
from perdure.control.sop_library import (
    SHIPPED,
    FoundCard,
    ListedCard,
    card_places,
    find_card,
    list_cards,
    read_card,
    version_key,
)
from perdure.errors import NotFoundError
from perdure.ports import Disk
from perdure.runtime.world import real_world
from perdure.storage.workspace import find_workspace

Data = dict[str, Any]


def list_of(directory: str | None, start_dir: str, environ: Mapping[str, str]) -> Data:
    """Every card that can be named from here, the places in the order in which they are searched.

    One that an earlier place has in the same version is ``hidden``. Raises StorageError.
    """
    disk = real_world().disk
    places = places_from(disk, directory, start_dir, environ)
    seen: set[tuple[str, str]] = set()
    cards, problems = [], []
    for place in places:
        listed = list_cards(disk, [place])
        problems += [one for one in listed if one.problem is not None]
        for one in sorted((one for one in listed if one.card is not None), key=_order):
            assert one.card is not None
            name = (one.card.sop_id, one.card.version)
            cards.append(
                {
                    "sop_id": one.card.sop_id,
                    "version": one.card.version,
                    "title": one.card.title,
                    "place": "shipped" if place == SHIPPED else place,
                    "path": one.path,
                    "hidden": name in seen,
                }
            )
            seen.add(name)
    return {
        "cards": cards,
        "problems": [
            {"path": one.path, "sop_id": one.claims, "error": one.problem.as_dict()}
            for one in problems
            if one.problem is not None
        ],
        "places": list(places),
    }


def show_of(
    ref: str, version: str, directory: str | None, start_dir: str, environ: Mapping[str, str]
) -> Data:
    """What a card says. Raises NotFoundError ``sop_unknown``, CardError."""
    return _shown(card_from_here(ref, version, directory, start_dir, environ))


def check_of(
    ref: str, version: str, directory: str | None, start_dir: str, environ: Mapping[str, str]
) -> Data:
    """What a card comes to, once it has validated whole, its files included.

    A path may also be that of a directory with a card. Raises NotFoundError ``sop_unknown``,
    CardError with every problem.
    """
    path = os.path.join(start_dir, ref)
    if not is_path(ref) and os.path.isdir(path):
        return _shown(read_card(path, disk=real_world().disk))
    return _shown(card_from_here(ref, version, directory, start_dir, environ))


def card_from_here(
    ref: str, version: str, directory: str | None, start_dir: str, environ: Mapping[str, str]
) -> FoundCard:
    """The card that ``ref`` means to somebody in ``start_dir``."""
    disk = real_world().disk
    places = places_from(disk, directory, start_dir, environ)
    return find_card(ref, version, disk=disk, places=places, directory=start_dir)


def places_from(
    disk: Disk, directory: str | None, start_dir: str, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Where cards are looked for: in the workspace that is meant, if there is one, and so on."""
    named = directory or environ.get("PERDURE_WORKSPACE")
    workspace: str | None = None
    if named:
        workspace = os.path.abspath(os.path.join(start_dir, named))
    else:
        try:
            workspace = find_workspace(disk, start_dir, None)
        except NotFoundError:
            workspace = None
    return card_places(disk, workspace=workspace, start_dir=start_dir)


def _shown(found: FoundCard) -> Data:
    shown = found.card.as_dict()
    return {**shown, "path": found.path, "sha256": found.sha256}


def _order(one: ListedCard) -> tuple[object, ...]:
    assert one.card is not None
    return (one.card.sop_id, version_key(one.card.version))
