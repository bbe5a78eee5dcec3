"""C-S3 over the library: an effect that cannot be repeated, its receipt, and who rules."""

import json
from collections.abc import Iterator

import pytest
from tests.conformance.host import Host, edges

from perdure import EvidenceError, HaltRuntime, RefusedError, TransitionError
from perdure.runtime.contracts import environment_for


@pytest.fixture
def rt(host: Host) -> Iterator[HaltRuntime]:
    with HaltRuntime(
        host.workspace, "T1", standing_authorities=["pay"], world=host.world()
    ) as runtime:
        runtime.add_node("pay", "Pay the invoice", effect="S3", outputs=["artifacts/pay/slip"])
        yield runtime


def contract_of(host: Host, rt: HaltRuntime) -> str:
    """What the contract under way says about the effect."""
    document = json.loads(host.read(f"contracts/{rt.node('pay').invocation}.json"))
    (said,) = [text for text in document["constraints"] if "effect" in text]
    return str(said)


def receipt_variable(rt: HaltRuntime) -> str:
    return environment_for(rt.engine, rt.node("pay"))["PERDURE_RECEIPT"]


def test_an_attempt_with_its_receipt_ends_like_any_other(host: Host, rt: HaltRuntime) -> None:
    rt.start("pay")
    assert "Record a RECEIPT right after" in contract_of(host, rt)
    assert receipt_variable(rt) == ""
    event = rt.receipt("pay", "order 4711")
    assert (event.kind, event.payload["proof"]) == ("RECEIPT", "order 4711")
    host.write("artifacts/pay/slip")
    rt.submit("pay")
    assert rt.node("pay").state == "DONE"


def test_a_claim_without_a_receipt_is_refused_and_leaves_the_node_at_work(
    host: Host, rt: HaltRuntime
) -> None:
    rt.start("pay")
    host.write("artifacts/pay/slip")
    before = rt.seq_last
    for claim in (
        lambda: rt.submit("pay"),
        lambda: rt.transition("pay", "VERIFYING", "paid, says the worker"),
    ):
        with pytest.raises(EvidenceError) as caught:
            claim()
        assert (caught.value.code, caught.value.rule) == ("receipt_missing", "C-S3")
        assert (rt.node("pay").state, rt.seq_last) == ("RUNNING", before)
    assert rt.registry == {}


def test_the_next_contract_after_a_receipt_says_not_to_repeat_the_effect(
    host: Host, rt: HaltRuntime
) -> None:
    rt.start("pay")
    rt.fail("pay", "transient-agent", "exit 1")
    assert edges(rt, "pay")[-1] == "N05"
    assert rt.frontier() == []
    with pytest.raises(TransitionError):
        rt.start("pay")
    rt.receipt("pay", "order 4711", receipt_id="R-4711")
    assert rt.frontier() == ["pay"]
    rt.start("pay")
    assert "receipt R-4711): do not repeat it" in contract_of(host, rt)
    assert receipt_variable(rt) == "R-4711"


def test_a_person_who_rules_that_it_did_not_happen_allows_it_once_more(
    host: Host, rt: HaltRuntime
) -> None:
    rt.start("pay")
    rt.fail("pay", "transient-agent", "stopped", interruption=True)
    (text,) = rt.status()["questions"].values()
    assert "did its external effect happen?" in text
    rt.retry("pay", "the shop knows of no order")
    rt.start("pay")
    assert "Record a RECEIPT right after" in contract_of(host, rt)
    rt.fail("pay", "transient-agent", "exit 1")
    assert rt.node("pay").state == "BLOCKED"


def test_an_attempt_whose_process_died_is_held_at_recovery(host: Host, rt: HaltRuntime) -> None:
    rt.start("pay")
    host.die(rt)
    with host.resume(pid=101) as again:
        assert again.node("pay").state == "BLOCKED"
        assert any("BLOCKED until a person says" in line for line in again.recovered.repaired)
        assert again.frontier() == []
    length = len(host.read())
    with host.resume(pid=101) as again:
        assert again.node("pay").state == "BLOCKED"
    assert len(host.read()) == length


def test_an_attempt_that_died_with_its_receipt_is_tried_again(host: Host, rt: HaltRuntime) -> None:
    rt.start("pay")
    rt.receipt("pay", "order 4711")
    host.die(rt)
    with host.resume(pid=101) as again:
        assert (again.node("pay").state, again.frontier()) == ("RETRYABLE", ["pay"])


def test_an_effect_without_an_authority_does_not_start(host: Host, rt: HaltRuntime) -> None:
    rt.add_node("refund", "Refund it", effect="S3")
    with pytest.raises(RefusedError) as caught:
        rt.start("refund")
    assert caught.value.rule == "GA-1"
    assert "G-refund-start" in caught.value.message
    assert rt.frontier() == ["pay"]
