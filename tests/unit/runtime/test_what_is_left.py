"""What is said of a task that stands still: who is needed, and what a name means now."""

import pytest
from tests.conformance.host import Host

from perdure import HaltRuntime
from perdure.core.people import Gate
from perdure.errors import BusyError
from perdure.service.tasks import Service


@pytest.fixture
def host(workspace: str) -> Host:
    return Host(workspace)


def service(host: Host, rt: HaltRuntime) -> Service:
    """The next process, once this one has let go."""
    rt.close()
    return Service(host.workspace, actor="coordinator:main", world=host.world(200))


def test_work_that_was_given_up_is_no_finished_task_before_something_takes_its_place(
    host: Host,
) -> None:
    rt = host.open()
    rt.add_node("draft", "Write it")
    rt.quarantine("draft", "nobody can")
    assert service(host, rt).resume()["exit_code"] == 10
    rt = host.open()
    rt.add_node("draft-2", "Write it otherwise", successor_of="draft")
    host.finish(rt, "draft-2")
    assert service(host, rt).resume()["exit_code"] == 11


def test_a_node_is_shown_although_a_gate_was_named_as_it_is(host: Host) -> None:
    rt = host.open()
    rt.add_node("send", "Send it", gates=[Gate("send", "start")])
    with pytest.raises(Exception, match="question send"):
        rt.start("send")
    rt.approve("send", by="gatekeeper:anna")
    assert service(host, rt).show("send")["type"] == "node"


def test_what_is_said_while_the_coordinator_keeps_the_lock_is_queued(host: Host) -> None:
    """Taking in many messages takes long; whoever says one more is not turned away."""
    rt = host.open()
    rt.engine.lock()
    said = Service(host.workspace, actor="sponsor:anna", world=host.world(200))
    answer = said.call("note", {"text": "one more"})
    assert answer["queued"]
    with pytest.raises(BusyError):
        said.call("start", {"node": "N1"})
    rt.engine.unlock()
    rt.engine.tick()
    assert answer["id"] in rt.state.ops


def test_where_nobody_coordinates_a_lock_that_is_kept_is_an_error(host: Host) -> None:
    host.open().close()
    other = host.attach(200)
    other.engine.lock()
    with pytest.raises(BusyError):
        Service(host.workspace, actor="sponsor:anna", world=host.world(300)).call(
            "note", {"text": "hello"}
        )
