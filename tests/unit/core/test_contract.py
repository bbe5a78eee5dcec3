"""The contract as a type."""

import jsonschema

from perdure.core.contract import Contract, contract_schema, dispatch_message, recall_path


def test_pd_c1_a_dispatch_message_is_one_line_that_names_the_contract() -> None:
    message = dispatch_message("contracts/inv-1.json")
    assert "contracts/inv-1.json" in message
    assert "\n" not in message
    assert len(message) < 100


def test_the_schema_has_every_field_and_is_a_schema() -> None:
    schema = contract_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    fields = schema["$defs"]["Contract"]["properties"]
    assert list(fields) == list(Contract.__struct_fields__)
    promised = {
        "invocation_id", "sop", "run", "parent", "inputs", "units", "skip", "outputs",
        "acceptance", "constraints", "budget", "authority_grants", "reporting",
        "steering_channel", "recall", "epoch",
    }  # fmt: skip
    assert promised <= set(fields)


def test_the_recall_file_stands_beside_the_contract() -> None:
    assert recall_path("inv-1") == "contracts/inv-1.recalled"
