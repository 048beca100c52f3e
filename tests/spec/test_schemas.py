"""The published schemas and the code accept the same messages, and we write only valid ones."""

import copy
import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from mail.core.addresses import AddressType
from mail.core.schema import parse_interswarm_message, parse_message
from mail.core.wire import (
    MAIL_MESSAGE_TYPES,
    MAILBroadcast,
    MAILInterrupt,
    MAILInterswarmMessage,
    MAILMessage,
    MAILRequest,
    MAILResponse,
)
from mail.errors import ProtocolError
from tests.support.messages import envelopes, interswarm_messages, messages, mutated, relaxed

SPEC = Path(__file__).parents[2] / "spec"
SAMPLES = sorted((SPEC / "examples").glob("*.json"))
CORE, INTERSWARM = "MAIL-core.schema.json", "MAIL-interswarm.schema.json"
SHAPES = (MAILMessage, MAILRequest, MAILResponse, MAILBroadcast, MAILInterrupt)


@functools.cache
def schema_of(name: str) -> dict[str, Any]:
    return json.loads((SPEC / name).read_text("utf-8"))


def validator_of(*schemas: dict[str, Any]) -> Draft202012Validator:
    """Return a validator of the last schema that knows all of them."""
    registry = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in schemas
    )
    return Draft202012Validator(schemas[-1], registry=registry)


@functools.cache
def reader(name: str) -> Draft202012Validator:
    return validator_of(schema_of(CORE), schema_of(name))


@functools.cache
def writer() -> Draft202012Validator:
    """Return the core schema as a strict peer of version 1.3.6 has it: closed, and no nulls."""
    schema = copy.deepcopy(schema_of(CORE))
    for shape in schema["$defs"].values():
        if "properties" in shape:
            shape["additionalProperties"] = False
        for field in shape.get("properties", {}).values():
            if isinstance(field.get("type"), list):
                field["type"] = field["type"][0]
    return validator_of(schema)


def accepted(parse: Any, message: Any) -> bool:
    try:
        parse(message)
    except ProtocolError:
        return False
    return True


# --- both ways ----------------------------------------------------------------------------------


@relaxed
@given(messages())
def test_the_core_schema_accepts_every_message_that_the_code_accepts(message) -> None:
    assert accepted(parse_message, message)
    assert reader(CORE).is_valid(message)


@relaxed
@given(interswarm_messages())
def test_the_interswarm_schema_accepts_what_the_code_accepts(message) -> None:
    assert accepted(parse_interswarm_message, message)
    assert reader(INTERSWARM).is_valid(message)


@settings(relaxed, max_examples=600)
@given(mutated(messages()))
def test_code_and_core_schema_agree_on_damaged_messages(message) -> None:
    assert accepted(parse_message, message) is reader(CORE).is_valid(message)


@settings(relaxed, max_examples=600)
@given(mutated(interswarm_messages()))
def test_code_and_interswarm_schema_agree_on_damaged_messages(message) -> None:
    assert accepted(parse_interswarm_message, message) is reader(INTERSWARM).is_valid(message)


@relaxed
@given(mutated(messages()))
def test_what_the_code_hands_on_is_still_valid(message) -> None:
    assume(accepted(parse_message, message))
    assert reader(CORE).is_valid(parse_message(message))


@relaxed
@given(envelopes())
def test_what_we_write_satisfies_even_a_strict_reader(envelope) -> None:
    writer().validate(envelope.to_wire())


def test_a_strict_reader_would_notice_nulls_and_foreign_fields() -> None:
    sample = json.loads((SPEC / "examples" / "mail_message_request.json").read_text("utf-8"))
    assert writer().is_valid(sample)
    assert not writer().is_valid(sample | {"extra": 1})
    sample["message"]["sender_swarm"] = None
    assert not writer().is_valid(sample)
    assert reader(CORE).is_valid(sample)


# --- schemas and types --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CORE, INTERSWARM])
def test_the_schemas_are_schemas(name) -> None:
    Draft202012Validator.check_schema(schema_of(name))
    assert schema_of(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema_of(name)["$id"].endswith(f"/spec/{name}")


@pytest.mark.parametrize("shape", SHAPES)
def test_schema_and_type_have_the_same_fields(shape) -> None:
    written = schema_of(CORE)["$defs"][shape.__name__]
    assert set(written["properties"]) == set(shape.__annotations__)
    assert set(written["required"]) == set(shape.__required_keys__)


def test_the_interswarm_schema_and_its_type_have_the_same_fields() -> None:
    written = schema_of(INTERSWARM)
    assert set(written["properties"]) == set(MAILInterswarmMessage.__annotations__)
    assert set(written["required"]) == set(MAILInterswarmMessage.__required_keys__)
    assert written["properties"]["msg_type"]["enum"] == MAIL_MESSAGE_TYPES


def test_the_schemas_list_the_kinds_and_parties_of_the_code() -> None:
    definitions = schema_of(CORE)["$defs"]
    assert definitions["MAILMessage"]["properties"]["msg_type"]["enum"] == MAIL_MESSAGE_TYPES
    parties = definitions["MAILAddress"]["properties"]["address_type"]["enum"]
    assert parties == list(AddressType.__args__)


# --- samples and the script ---------------------------------------------------------------------


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_sample_is_valid_for_schema_and_code(path) -> None:
    sample = json.loads(path.read_text("utf-8"))
    between = path.name.startswith("interswarm_")
    reader(INTERSWARM if between else CORE).validate(sample)
    assert (parse_interswarm_message if between else parse_message)(sample) == sample


def test_there_is_a_sample_of_every_kind_and_the_page_lists_them() -> None:
    page = (SPEC / "examples" / "README.md").read_text("utf-8")
    assert len(SAMPLES) == 7
    for path in SAMPLES:
        assert f"({path.name})" in page
    for kind in MAIL_MESSAGE_TYPES:
        assert (SPEC / "examples" / f"mail_message_{kind}.json").is_file()


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(SPEC / "validate_samples.py"), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        timeout=90,
    )


def test_the_script_passes_on_our_samples_from_any_folder() -> None:
    done = run_script()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("[VALID]") == len(SAMPLES)
    assert done.stderr == ""


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("validate", SPEC / "validate_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("wrong.json", "{}", "'id' is a required property"),
        ("wrong.json", "no json", "cannot be read"),
        ("interswarm_x.json", "{}", "'message_id' is a required property"),
        (
            "when.json",
            (SPEC / "examples" / "mail_message_request.json")
            .read_text("utf-8")
            .replace("2026-03-02T08:15:00.120000+00:00", "yesterday"),
            "'yesterday' is not a 'date-time'",
        ),
    ],
)
def test_the_script_names_what_is_wrong_with_a_sample(
    tmp_path, capsys, name, text, problem
) -> None:
    (tmp_path / name).write_text(text)
    assert load_script().main([str(tmp_path / name)]) == 1
    shown = capsys.readouterr().out
    assert f"[INVALID] {name}" in shown and problem in shown


def test_the_script_exits_with_an_error_when_one_of_many_is_wrong(tmp_path) -> None:
    (tmp_path / "bad.json").write_text("[]")
    done = run_script(str(SAMPLES[0]), str(tmp_path / "bad.json"))
    assert done.returncode == 1
    assert "[VALID]" in done.stdout and "[INVALID] bad.json" in done.stdout


def test_a_missing_sample_is_an_error() -> None:
    assert load_script().main(["/nowhere/x.json"]) == 1
