"""notify.yaml is taken whole or refused whole, and no secret stands in it as it is."""

from pathlib import Path

import pytest

from perdure.control.notify_config import (
    Channel,
    NotifyConfig,
    expand,
    find_notify_file,
    load_notify_file,
    read_notify_file,
)
from perdure.errors import NotFoundError, UsageError
from perdure.testing import SimDisk

FULL = """\
owner:
  - command: [python, tell.py, --loud]
    timeout: 5s
  - webhook: https://hooks.example.org/agents?key=${HOOK_KEY}
    headers: {Authorization: "Bearer ${HOOK_TOKEN}", X-Team: night}
    only: [OWNER_RECONCILE, NUDGE_MAIN_AGENT]
requester:
  - terminal
  - desktop
  - apprise: mailto://${MAIL_USER}:${MAIL_PASSWORD}@example.org
  - apprise: ${SLACK}
  - webhook: http://127.0.0.1:8080/perdure
"""


def load(text: str | bytes) -> NotifyConfig:
    return load_notify_file("notify.yaml", text.encode() if isinstance(text, str) else text)


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert caught.value.code == "notify_invalid"
    return [line.strip() for line in caught.value.message.strip().splitlines()[1:]]


def test_every_kind_of_channel_can_be_named() -> None:
    config = load(FULL)
    assert config.owner == (
        Channel("command", argv=("python", "tell.py", "--loud"), timeout_s=5.0),
        Channel(
            "webhook",
            "https://hooks.example.org/agents?key=${HOOK_KEY}",
            headers={"Authorization": "Bearer ${HOOK_TOKEN}", "X-Team": "night"},
            only=("OWNER_RECONCILE", "NUDGE_MAIN_AGENT"),
        ),
    )
    assert [channel.label for channel in config.channels("requester")] == [
        "terminal",
        "desktop",
        "apprise mailto://${MAIL_USER}:${MAIL_PASSWORD}@example.org",
        "apprise ${SLACK}",
        "webhook http://127.0.0.1:8080/perdure",
    ]


def test_the_example_in_the_documents_is_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "supervision.md"
    example = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    assert {channel.kind for channel in (*load(example).owner, *load(example).requester)} == {
        "command", "webhook", "terminal", "desktop", "apprise",
    }  # fmt: skip


def test_a_receiver_that_is_not_named_keeps_its_default() -> None:
    assert load("owner: [desktop]").requester == (Channel("terminal"),)
    assert load("requester: []") == NotifyConfig((), (), "notify.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "notify.yaml:1:1: the file is empty (write owner: or requester:)"),
        ("owners: []", "1:1: the file has no key 'owners' (did you mean owner?)"),
        ("owner: desktop", "1:8: owner must be a list of channels"),
        ("owner: [telegraph]", "1:9: a channel without an address cannot be 'telegraph'"),
        ("owner:\n  - {webhok: x}", "2:6: a channel has no key 'webhok' (did you mean webhook?)"),
        ("owner:\n  - {slack: x}", "a channel has no key 'slack' (write apprise)"),
        ("owner:\n  - {timeout: 3}", "2:5: a channel has exactly one of terminal, command"),
        ("owner:\n  - {webhook: 'http://x', apprise: 'y://z'}", "exactly one of"),
        ("owner:\n  - command: ls -l", "2:14: command must be a list"),
        ("owner:\n  - command: []", "command is empty"),
        ("owner:\n  - webhook: ftp://x/y", "2:14: the address of this webhook is not http"),
        ("owner:\n  - webhook: ", "webhook is empty"),
        ("owner:\n  - apprise: slack", "2:14: this is no address of a service (write SERVICE://"),
        ("owner:\n  - https://x/y", "2:5: a channel is not an address alone (write webhook: or"),
        ("owner:\n  - {apprise: 'a://b', headers: {X: y}}", "only a webhook has headers"),
        ("owner:\n  - {webhook: 'http://x', headers: {'a b': y}}", "'a b' is not a header"),
        ('owner:\n  - {webhook: "http://x", headers: {X: "y\\nZ: 1"}}', "'X' is not a header"),
        ("owner:\n  - {desktop: here}", "desktop takes no address"),
        ("owner:\n  - {command: [x], timeout: 1h}", "timeout is at most 300 seconds"),
        ("owner:\n  - {command: [x], timeout: -1}", "timeout must be a time above 0"),
        ("owner:\n  - {command: [x], only: [LATER]}", "only cannot be 'LATER' (use one of"),
        ("owner: [desktop, desktop]", "1:18: owner has the channel 'desktop' twice"),
        ("owner: [" + "{command: [x]}," * 33 + "]", "33 channels; 32 is the most"),
        ("owner: [", "not YAML"),
        (b"owner: [\xff]", "the file is not UTF-8"),
        (b"#" * (256 << 10) + b"#", "larger than"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str | bytes, expected: str) -> None:
    assert any(expected in problem for problem in problems(text)), problems(text)


@pytest.mark.parametrize(
    "secret",
    [
        "webhook: https://ada:pa55word@example.org/x",
        "webhook: https://example.org/x?token=abc",
        "webhook: https://example.org/x?api_key=abc&a=b",
        "webhook: https://hooks.example.org/services/T024BE7LD/B0FAKE0/XyZ0aBcD1eFgH2iJkL3m",
        "apprise: discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        "apprise: tgram://123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K/",
        "apprise: mailto://ada:pa55word@example.org",
        "command: [curl, 'https://ada:pa55word@example.org']",
        "{webhook: 'https://x.org', headers: {Authorization: Bearer pa55word}}",
        "{webhook: 'https://x.org', headers: {X-Api-Key: pa55word}}",
    ],
)
def test_a_secret_that_stands_there_as_it_is_is_refused_and_not_repeated(secret: str) -> None:
    entry = secret if secret.startswith("{") else f"{{{secret}}}"
    text = f"owner:\n  - {entry}" if secret[0] != "c" else f"owner:\n  - {secret}"
    (problem,) = problems(text)
    assert problem.endswith("(put it into a variable and write ${NAME} in its place)")
    for part in ("pa55word", "abc&", "XyZ0", "JHMHI", "AAEhB"):
        assert part not in problem


@pytest.mark.parametrize(
    ("word", "fine"),
    [
        ("Authorization: Bearer pa55word0", False),
        ("--token=pa55word", False),
        ("X-Api-Key: pa55word", False),
        ("Authorization: Bearer $TOKEN", True),
        ("--token=$TOKEN", True),
        ("bearer of news", True),
        ("--tokens", True),
    ],
)
def test_a_secret_in_a_command_is_noticed(word: str, fine: bool) -> None:
    text = f"owner:\n  - command: [curl, '{word}']"
    if fine:
        assert load(text).owner[0].argv == ("curl", word)
    else:
        (problem,) = problems(text)
        assert "let it read the secret from a variable" in problem
        assert "pa55word" not in problem


@pytest.mark.parametrize(
    "address",
    [
        "webhook: https://ada:${PASSWORD}@example.org/x?token=${TOKEN}",
        "webhook: https://internal-monitoring.example.org/teams/infrastructure-night-shift",
        "webhook: http://10.20.30.40:8080/v1/tasks?verbose=1",
        "apprise: json://localhost:8080/messages",
        "apprise: discord://${ID}/${TOKEN}",
    ],
)
def test_an_address_without_a_literal_secret_is_taken(address: str) -> None:
    assert len(load(f"owner:\n  - {address}").owner) == 1


def test_a_variable_is_put_in_and_remembered_as_secret() -> None:
    secrets: set[str] = set()
    assert expand("a-${X}-${Y_2}-$Z-${}", {"X": "1", "Y_2": "2"}, secrets) == "a-1-2-$Z-${}"
    assert secrets == {"1", "2"}


@pytest.mark.parametrize(
    "entry",
    ["webhook: pa55word", "webhook: hooks.example.org/pa55word", "apprise: tgram//1:pa55word",
     "https://hooks.example.org/pa55word", "'webhook:https://x/pa55word'"],
)  # fmt: skip
def test_an_address_in_a_wrong_form_is_not_repeated_either(entry: str) -> None:
    (problem,) = problems(f"owner:\n  - {entry}")
    assert "pa55word" not in problem


@pytest.mark.parametrize("value", ["pa55word\n", "pa55\tword", "pa55word\r"])
def test_a_variable_with_a_line_break_is_named_and_not_repeated(value: str) -> None:
    with pytest.raises(UsageError, match="KEY is not one line") as caught:
        expand("${KEY}", {"KEY": value}, set())
    assert (caught.value.code, "pa55" in str(caught.value)) == ("variable_unprintable", False)


@pytest.mark.parametrize("environment", [{}, {"KEY": ""}])
def test_a_variable_that_is_not_set_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="KEY is not set"):
        expand("${KEY}", environment, set())


def test_the_file_is_looked_for_in_three_places() -> None:
    disk = SimDisk()
    workspace = "/p/.perdure/tasks/T"
    disk.make_dirs(workspace)

    def found(**environment: str) -> str | None:
        return find_notify_file(disk, workspace, environment, "/here")

    assert found() is None
    disk.replace(f"{workspace}/notify.yaml", b"owner: [desktop]", durable=False)
    assert found() == f"{workspace}/notify.yaml"
    disk.replace("/p/.perdure/notify.yaml", b"owner: []", durable=False)
    assert found() == "/p/.perdure/notify.yaml"
    assert found(PERDURE_NOTIFY="mine.yaml") == "/here/mine.yaml"
    assert read_notify_file(disk, f"{workspace}/notify.yaml").owner == (Channel("desktop"),)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"/nowhere/notify\.yaml"):
        read_notify_file(SimDisk(), "/nowhere/notify.yaml")
