"""What agents are told about MAIL, and that it is true."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from mail.core.envelope import Envelope
from mail.core.message import create_agent_address
from mail.core.tools import helptext
from mail.core.tools.catalogue import CATALOGUE, parse_arguments

PAGES = Path(helptext.__file__).parent / "help"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


def test_every_tool_has_a_page_and_there_is_no_other() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {*CATALOGUE, "summary"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_a_page_is_a_valid_call(name) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", page(name), re.DOTALL)
    parse_arguments(name, json.loads(example), CATALOGUE[name].model)


@pytest.mark.parametrize(
    "name",
    [
        "send_request",
        "send_response",
        "send_interrupt",
        "send_broadcast",
        "send_interswarm_broadcast",
    ],
)
def test_the_message_of_a_page_is_what_its_example_sends(name) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", page(name), re.DOTALL)
    (shown,) = re.findall(r"```xml\n(.*?)```", page(name), re.DOTALL)
    call, root = json.loads(example), ET.fromstring(shown)
    envelope = Envelope(
        id="1",
        timestamp=root.findtext("timestamp"),
        kind="request",
        task_id="t",
        ref="r",
        sender=create_agent_address(root.findtext("from")),
        recipients=(create_agent_address(call.get("target", "all")),),
        subject=call["subject"],
        body=call["body"],
    )
    assert shown.strip() == envelope.to_entry()["content"].strip()


def test_the_summary_names_only_tools_that_exist() -> None:
    for name in re.findall(r"`([a-z]+_[a-z_]+)`", page("summary")):
        assert name in CATALOGUE
    for heading in ("MAIL Tools", "Actions", "User Tasks", "Tips", "Notes"):
        assert f"## {heading}" in page("summary")


def test_a_guide_stands_under_its_headline() -> None:
    text = helptext.get_tool_help(["send_request", "help"])
    assert text.startswith("===== Tool `send_request` =====\nAsks another agent")
    assert "\n\n===== Tool `help` =====\n" in text
    assert helptext.get_tool_help([]) == ""


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown tool name: dance"):
        helptext.get_tool_help(["help", "dance"])


def test_the_summary_is_the_default() -> None:
    text = helptext.build_mail_help_string("tides", "harbour")
    assert text.startswith("===== SUMMARY =====\n\n")
    assert text.count("=====") == 2 and text == text.strip()


def test_every_section_can_be_had() -> None:
    text = helptext.build_mail_help_string(
        "tides",
        "harbour",
        get_identity=True,
        get_tool_help=["await_message"],
        get_full_protocol=True,
    )
    places = [
        text.index(f"===== {title} =====\n\n")
        for title in (
            "SUMMARY",
            "YOUR IDENTITY",
            "TOOL HELP",
            "FULL MAIL PROTOCOL SPECIFICATION",
        )
    ]
    assert places == sorted(places)
    assert "**Name**: tides" in text and "**Swarm**: harbour" in text
    assert "**Local Address**: tides (same as name)" in text
    assert "**Interswarm Address**: tides@harbour" in text
    assert "Tool `await_message`" in text


def test_nothing_asked_is_nothing_said() -> None:
    assert helptext.build_mail_help_string("tides", "harbour", get_summary=False) == ""


def test_the_full_protocol_is_the_specification() -> None:
    text = helptext.build_mail_help_string("a", "s", get_summary=False, get_full_protocol=True)
    specification = Path(__file__).parents[3] / "spec" / "SPEC.md"
    protocol, table, _ = specification.read_text("utf-8").partition("\n## Rules and tests")
    assert text.endswith(protocol.strip()) and table
