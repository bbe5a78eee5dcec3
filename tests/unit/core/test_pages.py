"""Pages below docs/ with whatever a journal of another program may say."""

from msgspec import structs

from perdure.core.closing import Doc
from perdure.core.doc_ledger import doc_ledger
from perdure.core.fold import Replica
from perdure.core.model import Node, Spec, State
from perdure.core.plan_page import nodes_max, plan_page, table_row
from perdure.core.progress_page import progress_page

NASTY = "x|y\n| a | b |\n# heading\n<!-- c"


def replica_of(*names: str, docs: int = 0) -> Replica:
    replica = Replica()
    state = State(task_id="T1", updated_at=NASTY)
    for name in names:
        state.nodes[name] = Node(node_id=name, title=NASTY, spec=Spec())
    for number in range(docs):
        state.docs[f"d{number}|"] = Doc(
            path=f"d{number}|", purpose=NASTY, external=False, size_bytes=1, mtime_ns=0,
            sha256="0" * 64, at=NASTY, ref="J-2",
        )  # fmt: skip
    replica.state = state
    return replica


def rows(page: bytes) -> list[str]:
    return [line for line in page.decode().splitlines() if line.startswith("|")]


def columns(row: str) -> int:
    return row.replace("\\|", "").count("|")


def test_no_text_makes_a_column_a_row_or_a_heading() -> None:
    replica = replica_of("N|1", "N\n2", docs=3)
    for page in (plan_page(replica), progress_page(replica), doc_ledger(replica)):
        lines = page.decode().splitlines()
        assert "# heading" not in lines
        assert "| a | b |" not in lines
        assert len({columns(row) for row in rows(page)}) <= 1


def test_a_row_is_one_line_with_as_many_columns_as_cells() -> None:
    assert table_row("a|b", "c\nd") == "| a\\|b | c d |"


def test_the_pages_of_many_nodes_are_bounded() -> None:
    replica = replica_of(*(f"N{number}" for number in range(10_000)), docs=5_000)
    assert len(rows(plan_page(replica))) == nodes_max + 2
    for page in (plan_page(replica), progress_page(replica), doc_ledger(replica)):
        assert len(page) < 250_000
    assert structs.asdict(replica.state)["task_id"] == "T1", "rendering changes nothing"
