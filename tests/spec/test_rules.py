"""The rules of the specification, and the table that says which tests hold us to them."""

import ast
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mail.core.schema import parse_interswarm_message, parse_message
from mail.net.sse import SSEParser
from mail.server.routes.messages import MessageIn
from tests.spec import page
from tests.spec.test_schemas import CORE, INTERSWARM, reader, schema_of

ROOT = Path(__file__).parents[2]

# --- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", page.chapters())
def test_every_sentence_with_a_capital_word_is_one_rule_with_one_id(chapter) -> None:
    if chapter in (page.WORDS, page.TABLE):
        return
    for block in page.blocks(chapter):
        words, ids = page.keywords(block), page.ids(block)
        assert len(words) == len(ids) <= 1, block
        assert not ids or block.startswith(f"- **{ids[0]}** "), block


def test_the_chapter_of_words_makes_no_rule() -> None:
    assert not [rule for rule in page.rules() if rule.chapter == page.WORDS]
    assert sum(bool(page.keywords(block)) for block in page.blocks(page.WORDS)) == 1


def test_ids_are_unique_and_consecutive_within_their_chapter() -> None:
    rules = page.rules()
    assert [rule.id for rule, n in Counter(rules).items() if n > 1] == []
    homes = {rule.code: rule.chapter for rule in rules}
    for code, chapter in homes.items():
        numbers = [rule.number for rule in rules if rule.code == code]
        assert numbers == list(range(1, len(numbers) + 1)), code
        assert {rule.chapter for rule in rules if rule.code == code} == {chapter}
    assert len(set(homes.values())) == len(homes)


def test_other_capital_words_of_the_rfc_are_not_used() -> None:
    text = page.text().split("## 2. ")[1]
    assert re.findall(r"\b(?:SHALL|REQUIRED|RECOMMENDED)\b", text) == []


# --- the table ----------------------------------------------------------------------------------


def test_text_and_table_have_the_same_rules_with_the_same_levels() -> None:
    said = [(rule.id, rule.level + ", extension" * rule.extension) for rule in page.rules()]
    assert [(row.id, row.level) for row in page.rows()] == said


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of a file's tests, read without running it."""
    names = set()
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names |= {
            prefix + member.name
            for member in members
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return frozenset(names)


def test_every_rule_has_tests_that_exist_or_is_not_built() -> None:
    lacking = [row.id for row in page.rows() if bool(row.tests) == bool(row.not_built)]
    gone = []
    for row in page.rows():
        for node in row.tests:
            path, _, name = node.partition("::")
            is_test = name.rpartition("::")[2].startswith("test_")
            if not (is_test and (ROOT / path).is_file() and name in names_in(path)):
                gone.append(f"{row.id}: {node}")
    assert (lacking, gone) == ([], [])


def test_no_rule_waits_for_what_is_not_built() -> None:
    assert [row.id for row in page.rows() if row.not_built] == []


# --- shapes and samples -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["MAILMessage", "MAILRequest", "MAILResponse", "MAILBroadcast", "MAILInterrupt"]
)
def test_the_field_tables_are_the_core_schema(name) -> None:
    schema = schema_of(CORE)["$defs"][name]
    required = {field: field in schema["required"] for field in schema["properties"]}
    assert page.fields_of(name) == required
    assert list(page.fields_of(name)) == list(schema["properties"])


def test_the_table_of_addresses_is_the_core_schema() -> None:
    schema = schema_of(CORE)["$defs"]["MAILAddress"]
    assert page.fields_of("MAILAddress") == dict.fromkeys(schema["required"], True)


def test_the_table_of_the_wrapper_is_the_interswarm_schema() -> None:
    schema = schema_of(INTERSWARM)
    required = {field: field in schema["required"] for field in schema["properties"]}
    assert page.fields_of("MAILInterswarmMessage") == required


def test_the_table_of_message_fields_is_what_the_server_reads() -> None:
    head, body = next(t for t in page.tables("Transport") if "`POST /message`" in t[0][0])
    assert head[0].startswith("Field of")
    known = {field.alias or name for name, field in MessageIn.model_fields.items()} - {"message"}
    assert {row[0].strip("`") for row in body} == known


@pytest.mark.parametrize(("chapter", "code"), page.samples("json"))
def test_every_sample_is_valid(chapter, code) -> None:
    sample = json.loads(code)
    if "source_swarm" in sample:
        reader(INTERSWARM).validate(sample)
        assert parse_interswarm_message(sample) == sample
    elif "msg_type" in sample and "message" in sample:
        reader(CORE).validate(sample)
        assert parse_message(sample) == sample
    elif "body" in sample or "resume_from" in sample:
        MessageIn.model_validate(sample)
    elif "detail" in sample:
        assert set(sample) == {"detail", "errors"}
        shape = {"type": "object", "required": ["field", "problem"]}
        Draft202012Validator({"type": "array", "items": shape}).validate(sample["errors"])
    elif "response" in sample:
        fields = {"response", "events", "task_id", "subject", "status", "breakpoints"}
        assert set(sample) == fields | {"ended_by"}
        if sample["breakpoints"]:
            assert json.loads(sample["response"]) == sample["breakpoints"]
    else:
        assert sample["name"] == "mail" and sample["protocol_version"] == "1.3", chapter


def test_there_are_samples_of_the_kinds_that_need_one() -> None:
    kinds = [json.loads(code).get("msg_type") for _, code in page.samples("json")]
    assert {"request", "response", "broadcast", "broadcast_complete"} <= set(kinds)


def test_the_stream_of_the_page_can_be_read() -> None:
    [(_, block)] = page.samples("")
    parser = SSEParser()
    events = list(parser.feed(block.replace("\n", "\r\n").encode() + b"\r\n"))
    assert [(event.event, event.id) for event in events] == [("task_complete", "9"), ("ping", None)]
    for event in events:
        assert json.loads(str(event.data))["task_id"] == "high-water"
