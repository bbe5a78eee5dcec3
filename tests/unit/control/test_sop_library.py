"""A card is found by its id and version, with its files, and copied whole or not at all."""

from random import Random

import pytest

from perdure.control.sop_library import (
    SHIPPED,
    card_places,
    find_card,
    install_card,
    installed_card,
    list_cards,
    read_card,
    version_key,
)
from perdure.core.model import FAILURE_CLASSES
from perdure.errors import CardError, NotFoundError, UsageError
from perdure.storage.disk import RealDisk
from perdure.testing.crash import states
from perdure.testing.simdisk import Killed, SimDisk

ROUTES = ", ".join(f"{name}: ask_user" for name in FAILURE_CLASSES)


def card(sop_id: str, version: str, more: str = "") -> bytes:
    return (
        f"sop_id: {sop_id}\nversion: {version}\n{more}escalation: {{{ROUTES}}}\n"
        "phases: [intake, plan, work: [{id: a}], verify, report]\n"
    ).encode()


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    for path, data in {
        "/p/.perdure/sops/one.yaml": card("acme.one", "1.0.0"),
        "/p/.perdure/sops/two.yml": card("acme.one", "1.10.0"),
        "/p/.perdure/sops/three/card.yaml": card("acme.one", "1.9.0"),
        "/p/.perdure/sops/next.yaml": card("acme.one", "2.0.0-rc.1"),
        "/p/.perdure/sops/tools.yaml": card("acme.tools", "1.0.0", "files: [a.py, lib/b.py]\n"),
        "/p/.perdure/sops/a.py": b"a\n",
        "/p/.perdure/sops/lib/b.py": b"b\n",
        "/p/.perdure/sops/notes.txt": b"no card",
        "/w/sops/inputs.json": b"{}",
        "/w/sops/acme.one-1.0.0/card.yaml": card("acme.one", "1.0.0", "title: The copy\n"),
    }.items():
        disk.make_dirs(path.rpartition("/")[0])
        disk.replace(path, data, durable=True)
    disk.make_dirs("/p/src")
    return disk


PLACES = ("/w/sops", "/p/.perdure/sops")


def version_of(disk: SimDisk, wish: str) -> str:
    return find_card("acme.one", wish, disk=disk, places=PLACES).card.version


def test_the_places_are_those_of_workspace_project_and_package(disk: SimDisk) -> None:
    places = card_places(disk, workspace="/w", start_dir="/p/src")
    assert places == ("/w/sops", "/p/.perdure/sops", SHIPPED)
    assert card_places(disk, workspace=None, start_dir="/w") == (SHIPPED,)


def test_no_version_is_the_newest_by_number(disk: SimDisk) -> None:
    assert version_of(disk, "") == "1.10.0"


def test_what_leads_up_to_a_release_is_taken_only_where_there_is_none(disk: SimDisk) -> None:
    assert version_of(disk, "2") == "2.0.0-rc.1"
    disk.replace("/p/.perdure/sops/new.yaml", card("acme.one", "2.0.0"), durable=True)
    assert version_of(disk, "2") == "2.0.0"


def test_a_part_of_a_version_is_the_newest_that_begins_so(disk: SimDisk) -> None:
    assert version_of(disk, "1") == "1.10.0"
    assert version_of(disk, "1.9") == "1.9.0"
    assert version_of(disk, "1.0.0") == "1.0.0"
    assert version_of(disk, "2.0.0-rc.1") == "2.0.0-rc.1"


def test_versions_have_an_order() -> None:
    order = ["0.9.0", "1.0.0-alpha", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.2.0", "1.10.0"]
    assert sorted({*order}, key=version_key) == order


def test_the_first_place_that_has_a_version_wins(disk: SimDisk) -> None:
    assert find_card("acme.one", "1.0.0", disk=disk, places=PLACES).card.title == "The copy"


def test_a_version_that_is_not_there_is_told_with_those_that_are(disk: SimDisk) -> None:
    with pytest.raises(NotFoundError) as caught:
        version_of(disk, "3")
    assert caught.value.code == "sop_unknown"
    assert "there is 1.0.0, 1.9.0, 1.10.0, 2.0.0-rc.1" in caught.value.message


def test_what_is_no_version_is_refused(disk: SimDisk) -> None:
    with pytest.raises(UsageError) as caught:
        version_of(disk, "newest")
    assert (caught.value.code, caught.value.rule) == ("sop_bad_version", "SC-3")


def test_an_unknown_card_is_told_with_a_near_one(disk: SimDisk) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_card("acme.tool", disk=disk, places=PLACES)
    assert (caught.value.code, caught.value.suggestions) == ("sop_unknown", ["acme.tools"])
    assert caught.value.exit_code == 3


def test_a_path_names_a_card_from_where_one_stands(disk: SimDisk) -> None:
    found = find_card("../.perdure/sops/two.yml", disk=disk, places=(), directory="/p/src")
    assert (found.card.version, found.path) == ("1.10.0", "/p/.perdure/sops/two.yml")
    assert read_card("/w/sops/acme.one-1.0.0", disk=disk).card.title == "The copy"
    with pytest.raises(NotFoundError):
        find_card("./none.yaml", disk=disk, places=(), directory="/p")
    with pytest.raises(NotFoundError):
        find_card("/p/.perdure/sops/two.yml", "9", disk=disk, places=())


def test_a_card_that_cannot_be_used_never_hides_behind_another(disk: SimDisk) -> None:
    disk.replace("/p/.perdure/sops/bad.yaml", b"sop_id: acme.one\nversion: x\n", durable=True)
    with pytest.raises(CardError):
        version_of(disk, "")
    assert find_card("acme.tools", disk=disk, places=PLACES).card.sop_id == "acme.tools"
    bad = [one for one in list_cards(disk, PLACES) if one.problem is not None]
    assert [(one.path, one.claims) for one in bad] == [("/p/.perdure/sops/bad.yaml", "acme.one")]


def test_what_is_no_file_is_no_card(disk: SimDisk) -> None:
    disk.make_dirs("/p/deep/card.yaml")
    with pytest.raises(NotFoundError) as caught:
        read_card("/p/deep", disk=disk)
    assert (caught.value.code, caught.value.message) == (
        "sop_unknown",
        "/p/deep/card.yaml is no file, so it is no card.",
    )


def test_a_card_comes_with_its_files(disk: SimDisk) -> None:
    found = find_card("acme.tools", disk=disk, places=PLACES)
    assert found.files == {"a.py": b"a\n", "lib/b.py": b"b\n"}
    disk.replace("/p/.perdure/sops/a.py", b"changed\n", durable=True)
    assert find_card("acme.tools", disk=disk, places=PLACES).sha256 != found.sha256


def test_a_file_that_is_missing_is_told_before_anything_runs(disk: SimDisk) -> None:
    disk.unlink("/p/.perdure/sops/lib/b.py", durable=True)
    with pytest.raises(CardError) as caught:
        find_card("acme.tools", disk=disk, places=PLACES)
    assert (caught.value.code, caught.value.rule) == ("sop_file_missing", "SC-3")


def test_a_copy_is_whole_or_does_not_count_wherever_it_was_cut(disk: SimDisk) -> None:
    found = find_card("acme.tools", disk=disk, places=PLACES)
    steps = 0
    while True:
        there = disk.beside(cut_after=steps).survive_kill(cut_after=steps)
        try:
            install_card(found, disk=there, workspace="/new")
            break
        except Killed:
            pass
        for left in [there.survive_kill(), *states(there, chance=Random(steps), limit=20)]:
            try:
                held = installed_card("acme.tools", "1.0.0", disk=left, workspace="/new")
            except NotFoundError:
                held = found
            assert held.sha256 == found.sha256
            assert install_card(found, disk=left, workspace="/new") == "sops/acme.tools-1.0.0"
            again = installed_card("acme.tools", "1.0.0", disk=left, workspace="/new")
            assert again.sha256 == found.sha256
        steps += 1
    assert steps > 5
    for left in states(there, chance=Random(0)):
        held = installed_card("acme.tools", "1.0.0", disk=left, workspace="/new")
        assert held.sha256 == found.sha256


def test_the_cards_that_come_along_are_good() -> None:
    listed = list_cards(RealDisk(), [SHIPPED])
    assert [(one.card.sop_id, one.card.version) for one in listed if one.card is not None] == [
        ("perdure.batch-extraction", "1.0.0"),
        ("perdure.review-and-revise", "1.0.0"),
    ]
    for one in listed:
        assert one.problem is None
        assert read_card(one.path, disk=RealDisk()).card.path == one.path
