"""The grammar of grants, and what follows from them."""

import pytest

from perdure.core.grants import (
    allows_network,
    check_grants,
    grant_problem,
    grants_max,
    grants_of,
    may_write,
    opens_workspace,
    read_grant,
    spend_limit_usd,
    write_paths,
)
from perdure.core.model import Budget, Node, Spec
from perdure.errors import UsageError


@pytest.mark.parametrize(
    ("text", "base", "path", "tree"),
    [
        ("write:shared/a.txt", "", "shared/a.txt", False),
        ("write:shared/./deep//*", "", "shared/deep", True),
        ("write:tmp/*", "", "tmp", True),
        ("write:artifacts/N1/*", "", "artifacts/N1", True),
        ("write:$TASK/*", "$TASK", "", True),
        ("write:$TASK/src/*", "$TASK", "src", True),
        ("write:$HOME/.cache/x", "$HOME", ".cache/x", False),
        ("write:/srv/data/*", "/", "srv/data", True),
        ("write:/*", "/", "", True),
    ],
)
def test_a_write_grant_names_a_file_or_a_tree(text: str, base: str, path: str, tree: bool) -> None:
    grant = read_grant(text)
    assert (grant.kind, grant.base, grant.path, grant.tree) == ("write", base, path, tree)
    assert grant_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "write",
        "write:",
        "write:*",
        "write:/",
        "write:$TASK",
        "write:$TASK/",
        "write:$TASK//etc/passwd",
        "write:$TASK/../x",
        "write:../x",
        "write:a/../b",
        "write:a/*/b",
        "write:a*",
        "write:a\\b",
        "write:a\0b",
        "read:a",
        "network:",
        "network:all",
        "spend:5",
        "spend:max_usd=",
        "spend:max_usd=-1",
        "spend:max_usd=nan",
        "spend:max_usd=inf",
    ],
)
def test_au_1_what_is_no_grant_is_refused_with_what_would_be_one(text: str) -> None:
    assert grant_problem(text)
    with pytest.raises(UsageError) as caught:
        read_grant(text)
    assert (caught.value.code, caught.value.rule) == ("bad_grant", "AU-1")
    assert "write:PATH" in caught.value.fix


@pytest.mark.parametrize(
    "path",
    [
        "journal.jsonl", "journal-mirror.jsonl", "lease.json", "checkpoint.json", ".snapshot.json",
        "Contracts/*", "contracts/inv-1.json", "steering/*", "instances/*", "sops/*", "docs/*",
        "artifacts/*", "artifacts/registry.json", "artifacts/old/*",
    ],
)  # fmt: skip
def test_no_grant_names_what_the_runtime_keeps_for_itself(path: str) -> None:
    assert "belongs to the runtime" in grant_problem(f"write:{path}")


def test_grants_come_to_absolute_paths() -> None:
    grants = (
        "write:artifacts/N1/*", "write:shared/b", "write:$TASK/src/*", "write:$TASK/*",
        "write:$HOME/.cache/*", "write:/srv/x", "network:read", "spend:max_usd=2",
    )  # fmt: skip
    paths = write_paths(grants, "/p/.perdure/tasks/T", "/p", "/home/me")
    assert paths == (
        "/p/.perdure/tasks/T/artifacts/N1", "/p/.perdure/tasks/T/shared/b", "/p/src", "/p",
        "/home/me/.cache", "/srv/x",
    )  # fmt: skip
    assert "/home" not in "".join(write_paths(grants, "/w", "/p", ""))
    assert opens_workspace(paths, "/p/.perdure/tasks/T")
    assert not opens_workspace(paths[:3], "/p/.perdure/tasks/T")
    assert opens_workspace(("/",), "/w")
    assert not opens_workspace(("/p/.perdure/tasks/T2",), "/p/.perdure/tasks/T")


def test_the_network_is_closed_unless_it_is_granted() -> None:
    assert not allows_network(("write:tmp/*", "spend:max_usd=1"))
    assert allows_network(("network:read",))
    assert allows_network(("network:write",))


def test_the_least_of_several_amounts_is_the_limit() -> None:
    assert spend_limit_usd(("write:tmp/*",)) is None
    assert spend_limit_usd(("spend:max_usd=5", "spend:max_usd=2.5")) == 2.5


def test_a_node_has_its_scope_and_what_its_spec_grants_and_nothing_else() -> None:
    spec = Spec(
        outputs=("artifacts/N1/a", "shared/b"),
        budget=Budget(max_cost_usd=2.5),
        grants=("write:shared/c/*", "write:shared/d", "write:$TASK/*", "spend:max_usd=9"),
    )
    node = Node("N1", "first", spec, effect="S2")
    assert grants_of(node) == [
        "write:artifacts/N1/*",
        "write:tmp/*",
        "write:shared/b",
        "network:read",
        "spend:max_usd=2.5",
        "write:shared/c/*",
        "write:shared/d",
        "write:$TASK/*",
    ]
    allowed = ("artifacts/N1/x/y", "shared/b", "shared/c/x/y", "shared/d")
    denied = ("artifacts/N2/x", "shared/c2", "shared/e", "shared/d/x", "journal.jsonl")
    assert all(may_write(node, path) for path in allowed)
    assert not any(may_write(node, path) for path in denied)


def test_what_a_journal_of_others_calls_a_grant_opens_nothing() -> None:
    assert not may_write(Node("N1", "first", Spec(grants=("everything",))), "shared/a")


def test_a_node_has_a_limited_number_of_grants() -> None:
    check_grants(f"write:shared/{number}" for number in range(grants_max))
    with pytest.raises(UsageError, match="too many"):
        check_grants(f"write:shared/{number}" for number in range(grants_max + 1))
