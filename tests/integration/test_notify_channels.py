"""Messages really go: to a server on loopback, to a command, to a service of apprise."""

import json
import os
import socket
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.webhook import Webhook

from perdure.control.notify_channels import MISSING_APPRISE, Courier, Message
from perdure.control.notify_config import Channel

MESSAGE = Message(
    "m-1",
    "owner",
    "NUDGE_MAIN_AGENT",
    "T",
    "/w",
    "T is silent",
    "for 40 min",
    "2027-01-01",
    {"a": 1},
)


def courier(directory: Path | str = "/", **environment: str) -> Courier:
    return Courier({"PATH": os.environ["PATH"], **environment}, str(directory))


def test_a_webhook_gets_the_message_with_its_id() -> None:
    with Webhook() as hook:
        channel = Channel(
            "webhook", "${WHERE}?key=${KEY}", headers={"Authorization": "Bearer ${KEY}"}
        )
        assert courier(WHERE=hook.url, KEY="s3cret").send(channel, MESSAGE) == ""
    assert hook.messages == [
        {
            "id": "m-1", "to": "owner", "kind": "NUDGE_MAIN_AGENT", "task_id": "T",
            "workspace": "/w", "title": "T is silent", "text": "for 40 min", "at": "2027-01-01",
            "data": {"a": 1},
        }
    ]  # fmt: skip
    (headers,) = hook.headers
    assert headers["idempotency-key"] == "m-1"
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [301, 302, 400, 404, 429, 500, 503])
def test_whatever_is_no_success_is_no_delivery(status: int) -> None:
    with Webhook() as hook:
        hook.status, hook.location = status, hook.url
        assert courier().send(Channel("webhook", hook.url), MESSAGE) == f"it answered {status}"
    assert hook.ids == {"m-1": 1}  # a redirect is not followed


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with Webhook() as hook:
        hook.release.clear()
        said = courier().send(Channel("webhook", hook.url, timeout_s=0.2), MESSAGE)
    assert "0.2 s" in said or "timed out" in said


def test_a_server_that_is_not_there_is_named_without_the_secret() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/${{KEY}}"
        said = courier(KEY="refused").send(Channel("webhook", url), MESSAGE)
    assert said.startswith("it cannot be reached")
    assert "refused" not in said


@pytest.mark.parametrize("value", ["s3cret\u20ac", "s3cret x", "s3cret\n", "s3cret\\'"])
@pytest.mark.parametrize("where", ["header", "address"])
def test_a_value_that_cannot_be_sent_is_not_repeated(value: str, where: str) -> None:
    channel = (
        Channel("webhook", "http://127.0.0.1:9/", headers={"Authorization": "Bearer ${KEY}"})
        if where == "header"
        else Channel("webhook", "http://127.0.0.1:9/?key=${KEY}")
    )
    said = courier(KEY=value).send(channel, MESSAGE)
    assert said
    assert "s3cret" not in said


def test_an_unset_variable_is_named() -> None:
    said = courier().send(Channel("webhook", "${NOT_THERE}"), MESSAGE)
    assert "NOT_THERE is not set" in said
    assert "Set NOT_THERE" in said


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "nothing", "http://"])
def test_a_variable_cannot_lead_elsewhere(address: str) -> None:
    said = courier(WHERE=address).send(Channel("webhook", "${WHERE}"), MESSAGE)
    assert said == "its address is not http or https"


def test_a_proxy_of_the_environment_is_used_and_no_proxy_respected() -> None:
    with Webhook() as proxy:
        channel = Channel("webhook", "http://far.invalid/hook")
        assert courier(http_proxy=proxy.url).send(channel, MESSAGE) == ""
        around = courier(http_proxy=proxy.url, no_proxy="other, .invalid")
        assert around.send(channel, MESSAGE) != ""
    assert len(proxy.messages) == 1


def script(directory: Path, text: str) -> tuple[str, ...]:
    path = directory / "tell.py"
    path.write_text(text)
    return (sys.executable, str(path), str(directory / "got"))


TELL = """
import json, os, sys
with open(sys.argv[1], "w") as out:
    json.dump([json.load(sys.stdin), os.environ["PERDURE_MESSAGE_ID"], os.environ["KEY"]], out)
"""


def test_a_command_gets_the_message_on_standard_input(tmp_path: Path) -> None:
    channel = Channel("command", argv=script(tmp_path, TELL))
    assert courier(tmp_path, KEY="x").send(channel, MESSAGE) == ""
    message, message_id, key = json.loads((tmp_path / "got").read_text())
    assert (message["id"], message_id, key) == ("m-1", "m-1", "x")
    assert message["title"] == "T is silent"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys; sys.exit('no such recipient')", "it ended with 1: no such recipient"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it ended with -9"),
        ("open('/nowhere/never').read()", "it ended with 1: FileNotFoundError"),
        ("pass", ""),
    ],
)
def test_a_command_has_delivered_when_it_ends_with_0(
    tmp_path: Path, text: str, expected: str
) -> None:
    said = courier(tmp_path).send(Channel("command", argv=script(tmp_path, text)), MESSAGE)
    assert said == expected if expected in ("", "it ended with -9") else said.startswith(expected)


@pytest.mark.parametrize(
    ("message_id", "header"),
    [("T:p:4711 %", "T:p:4711 %"), ("T:\u20ac", "T%3A%E2%82%AC"), ("a\nb", "a%0Ab")],
)
def test_whatever_an_id_is_made_of_it_arrives(message_id: str, header: str) -> None:
    message = msgspec.structs.replace(MESSAGE, id=message_id, text="half a character: \udcff")
    with Webhook() as hook:
        assert courier().send(Channel("webhook", hook.url), message) == ""
    assert hook.headers[0]["idempotency-key"] == header
    assert hook.messages[0]["id"] == message_id


@pytest.mark.parametrize("name", ["MY_TOKEN", "SMTP_PASSWORD", "TOK"])
def test_a_command_that_prints_a_secret_has_it_masked(tmp_path: Path, name: str) -> None:
    text = f"import os, sys; sys.exit('refused with ' + os.environ[{name!r}] + ' at /home')"
    channel = Channel("command", argv=script(tmp_path, text))
    said = courier(tmp_path, HOME="/home", **{name: "s3cretS3cretS3cret"}).send(channel, MESSAGE)
    assert said == "it ended with 1: refused with *** at /home"


def test_a_command_that_hangs_is_ended_at_its_limit(tmp_path: Path) -> None:
    argv = script(tmp_path, "import threading; threading.Event().wait()")
    said = courier(tmp_path).send(Channel("command", argv=argv, timeout_s=0.3), MESSAGE)
    assert said == "it had not ended after 0.3 s"


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = courier(tmp_path).send(Channel("command", argv=("no-such-program",)), MESSAGE)
    assert said.startswith("it cannot be started: no-such-program")


def test_a_long_message_does_not_need_to_be_read(tmp_path: Path) -> None:
    long = Message("m-2", "owner", "X", "T", "/w", "t", "x" * 2_000_000, "now")
    assert courier(tmp_path).send(Channel("command", argv=script(tmp_path, "pass")), long) == ""


class Service:
    """Stands in for the package apprise."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str]] = []
        self.takes = True
        service = self

        class Apprise:
            def add(self, address: str) -> bool:
                self.address = address
                return not address.startswith("unknown")

            def notify(self, *, title: str, body: str) -> bool:
                service.sent.append((self.address, title, body))
                return service.takes

        self.module: Any = types.ModuleType("apprise")
        self.module.Apprise = Apprise


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    monkeypatch.setitem(sys.modules, "apprise", service.module)
    return service


def test_apprise_gets_title_text_and_id(service: Service) -> None:
    assert courier(KEY="k").send(Channel("apprise", "slack://${KEY}"), MESSAGE) == ""
    assert service.sent == [("slack://k", "T is silent", "for 40 min\n[m-1]")]


def test_the_desktop_goes_through_apprise(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for platform, scheme in (("linux", "dbus"), ("darwin", "macosx"), ("win32", "windows")):
        monkeypatch.setattr(sys, "platform", platform)
        assert courier().send(Channel("desktop"), MESSAGE) == ""
        assert service.sent.pop()[0] == f"{scheme}://"


def test_apprise_that_refuses_has_not_delivered(service: Service) -> None:
    assert "no such address" in courier().send(Channel("apprise", "unknown://x"), MESSAGE)
    service.takes = False
    assert "did not take it" in courier().send(Channel("apprise", "slack://x"), MESSAGE)


def test_without_apprise_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert courier().send(Channel("desktop"), MESSAGE) == MISSING_APPRISE
    assert "pip install 'perdure[notify]'" in MISSING_APPRISE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own imports
def test_the_real_apprise_delivers() -> None:
    pytest.importorskip("apprise")
    with Webhook() as hook:
        address = hook.url.replace("http://", "json://")
        assert courier().send(Channel("apprise", address), MESSAGE) == ""
    assert "for 40 min" in json.dumps(hook.messages)
