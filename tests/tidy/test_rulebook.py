"""The rulebook is complete: every rule id has a sentence, a strength, and a test that exists."""

import ast
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path

import pytest

from perdure.core.rulebook import HELD_BY, STRENGTHS, held, strength_of
from perdure.core.rules import meaning_of, rule_ids
from perdure.service.pages import read_page

ROOT = Path(__file__).resolve().parents[2]

# The rule ids of HALT v1.0.2, chapters 01 to 11; each has a place here, whatever came of it.
_HALT = """
AX-1 AX-2 AX-3 AX-4 AX-5 INV-1 INV-2 INV-3 INV-4 INV-5 INV-6 INV-7 INV-8 INV-9 INV-10
C-ART C-UNIT C-VERIFY C-TX C-NOREWRITE C-S3 C-TRUTH
N01 N02 N03 N04 N05 N06 N07 N08 N09 N10 N11 N12 N13 N14 N15 FSN-1 FSN-2 FSN-3 FSN-4 FSN-5
FST-1 FST-2 FST-3 FST-4 FR-1 FR-2 VR-0 VR-1 VR-2 VR-3 RT-1 RT-2 RT-3 GE-1 GE-2 GE-3 GE-4
SC-1 SC-2 SC-3 IO-1 IO-2 IO-3 FE-1 FE-2
PL-1 PL-2 PL-3 PL-4 J-1 J-2 J-3 J-4 TG-1 TG-2 TG-3 CK-1 CK-2 AR-1 AR-2 AR-3 UL-1 UL-2
R0 R1 R2 R3 R4 R5 R6 R7 RC-1 RC-2 RC-3
NC-1 NC-2 NS-1 NS-2 NS-3 QA-1 QA-2 DP-1 DP-2 DP-3 AP-N4
PD-C1 PD-C2 PD-C3 PD-C4 PD-H1 PD-H2 PD-H3 PD-J1 AU-1 AU-2 AU-3
H1 H2 H3 H4 S1 S2 S3 S4 ST-1 ST-2 ST-3 GA-1 GA-2 AD-1 AD-2
MB-1 MB-2 ME-1 ME-2 ME-3 ME-4
"""
HALT = tuple(_HALT.split())


@lru_cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_rule_of_halt_is_there() -> None:
    assert sorted(set(HALT) - set(rule_ids())) == []


def test_every_rule_has_a_test_and_no_line_is_left_over() -> None:
    assert sorted(set(rule_ids()) ^ set(HELD_BY)) == []


@pytest.mark.parametrize("rule", sorted(HELD_BY))
def test_the_test_of_a_rule_exists(rule: str) -> None:
    file, _, name = held(rule).test.partition("::")
    assert name in functions_of(file)
    assert held(rule).strength in STRENGTHS


def test_each_strength_is_used() -> None:
    assert {strength_of(rule) for rule in rule_ids()} == set(STRENGTHS)


def test_the_page_has_every_rule() -> None:
    page = read_page("protocol.md")
    for rule in rule_ids():
        assert f"\n| {rule} | {meaning_of(rule)} |" in page.replace("\\|", "|"), rule


def test_a_wheel_brings_the_page_and_the_cards(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=50)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        page = archive.read("perdure/docs/protocol.md").decode()
    assert page == read_page("protocol.md")
    sources = {
        f"perdure/{p.relative_to(ROOT / 'src/perdure')}" for p in ROOT.glob("src/perdure/**/*.py")
    }
    assert sources <= names
