"""The specification names what the code has: its tables cannot drift from it unseen."""

import re

import pytest

import mail.errors
import mail.server.errors
from mail.clock import SystemClock
from mail.config.server import LimitsConfig, SettingsConfig
from mail.core.compose import Composer, Subject
from mail.core.events import EVENT_KINDS, STREAM_KINDS, TERMINAL_KINDS
from mail.core.runtime.delivery import tier_of
from mail.core.tasks import TaskState
from mail.core.tools.catalogue import CATALOGUE, MAIL_TOOL_NAMES, HelpTopic, ToolSpec
from mail.core.wire import MAIL_MESSAGE_TYPES
from mail.errors import MAILError
from mail.net.sse import SEND_SECONDS
from mail.server import at_work, quotas, swarm
from mail.server import middleware as limits
from mail.server.bodies import MAX_DEPTH, MAX_DIGITS, MAX_VALUES
from mail.server.connections import HEADER_SECONDS
from mail.server.errors import STATUS_OF, status_of
from mail.server.routes.messages import MAX_TIMEOUT_SECONDS
from mail.version import PROTOCOL_VERSION
from tests.spec import page

TEXT = page.text()
SECTIONS = page.chapters()
TOOL_ORDER = (
    "send_request",
    "send_response",
    "send_interrupt",
    "send_broadcast",
    "send_interswarm_broadcast",
    "discover_swarms",
    "acknowledge_broadcast",
    "ignore_broadcast",
    "await_message",
    "search_memory",
    "help",
    "task_complete",
    "read_attachment",
    "send_attachment",
    "teammate_message",
    "teammate_broadcast",
    "letter_receipts",
)


def first_cells(section: str) -> list[list[str]]:
    """Return the names in the first column of a section's tables."""
    rows = [line.split("|")[1] for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", cell) for cell in rows]


def test_it_is_the_protocol_that_the_package_speaks() -> None:
    assert TEXT.startswith(f"# MAIL, protocol {PROTOCOL_VERSION}\n")


def test_the_tools_are_those_of_the_catalogue() -> None:
    (_, tools), (_, arguments) = page.tables("Tools")
    assert [row[0].strip("`") for row in tools] == list(TOOL_ORDER)
    assert set(TOOL_ORDER) == set(CATALOGUE)
    for name, audience, names, _ in tools:
        spec = CATALOGUE[name.strip("`")]
        assert audience == spec.audience
        assert re.findall(r"`(\w+)`", names) == fields_of(spec)
    described = {name for row in arguments for name in re.findall(r"`(\w+)`", row[0])}
    assert described == {field for spec in CATALOGUE.values() for field in fields_of(spec)}


def fields_of(spec: ToolSpec) -> list[str]:
    """Return the names of a tool's arguments as models write them."""
    return [field.alias or name for name, field in spec.model.model_fields.items()]


def test_the_defaults_of_arguments_are_those_of_the_code() -> None:
    [_, (_, arguments)] = page.tables("Tools")
    words = {"required": ..., "null": None, "empty": [], "true": True, "false": False, "5": 5}
    words |= {"0": 0, "10000": 10_000}
    words |= {"normal": "normal", "300": 300.0}
    shown = {name: words[row[2]] for row in arguments for name in re.findall(r"`(\w+)`", row[0])}
    for spec in CATALOGUE.values():
        for name, field in spec.model.model_fields.items():
            default = ... if field.is_required() else field.get_default(call_default_factory=True)
            assert shown[field.alias or name] == default, f"{spec.name}: {name}"


def test_the_visible_tools_and_the_topics_of_help_are_those_of_the_code() -> None:
    told = " ".join(page.blocks("Tools"))
    visible = told.split("visible history:")[1].split(".")[0]
    assert re.findall(r"`(\w+)`", visible) == MAIL_TOOL_NAMES
    topics = told.split("`get_tool_help` takes")[1].split(".")[0]
    assert re.findall(r"`(\w+)`", topics) == list(HelpTopic.__args__)


def test_the_kinds_of_messages_are_those_of_the_code() -> None:
    listed = [names[0] for names in first_cells("Messages")]
    assert [name for name in listed if name in MAIL_MESSAGE_TYPES] == MAIL_MESSAGE_TYPES


def test_the_states_are_those_of_the_code() -> None:
    listed = {name for names in first_cells("Tasks") for name in names}
    resumes = {"resume_from", "user_response", "breakpoint_tool_call"}
    assert listed - resumes == set(TaskState)


def test_the_events_are_known_to_the_code() -> None:
    section = SECTIONS["Events"]
    told = {name for names in first_cells("Events") for name in names}
    later = {"interswarm_message_sent", "interswarm_message_received", "interswarm_message_error"}
    ends = {"run_loop_cancelled", "run_loop_error", "shutdown_requested"}  # of 1.3.6 only
    assert told == EVENT_KINDS - ends and later <= told
    for kind in TERMINAL_KINDS | STREAM_KINDS:
        assert f"`{kind}`" in section


def test_every_subject_of_the_system_is_named() -> None:
    named = set(re.findall(r"`(::\w+::)`", SECTIONS["Errors"]))
    elsewhere = {Subject.ACTION_COMPLETE_BROADCAST}
    elsewhere |= {Subject.SHUTDOWN_REQUESTED}  # of the library's callers
    assert named == set(Subject) - elsewhere


@pytest.mark.parametrize(
    ("sender", "kind", "tier"),
    [
        *(("system", kind, 1) for kind in MAIL_MESSAGE_TYPES),
        *((person, kind, 2) for person in ("admin", "user") for kind in MAIL_MESSAGE_TYPES),
        ("agent", "interrupt", 3),
        ("agent", "broadcast_complete", 3),
        ("agent", "broadcast", 4),
        ("agent", "request", 5),
        ("agent", "response", 5),
    ],
)
def test_the_tiers_are_the_published_ones(sender, kind, tier) -> None:
    party = {"address_type": sender, "address": "x"}
    envelope = Composer("s", SystemClock()).message(kind, "t", party, [party], "", "")
    assert tier_of(envelope) == tier
    row = next(line for line in SECTIONS["Order"].splitlines() if line.startswith(f"| {tier} |"))
    word = {"broadcast_complete": "completion"}.get(kind, kind) if sender == "agent" else sender
    assert word in row


def error_rows() -> dict[str, int]:
    (_, body) = next(table for table in page.tables("Errors") if table[0][-1] == "Over HTTP")
    return {row[1].strip("`"): int(row[2]) for row in body}


@pytest.mark.parametrize(("name", "status"), error_rows().items())
def test_the_statuses_are_those_of_the_server(name, status) -> None:
    if name == "any other":
        assert status_of(MAILError("x")) == status
        return
    error = getattr(mail.errors, name, None) or getattr(mail.server.errors, name)
    found = next(STATUS_OF[cls] for cls in error.__mro__ if cls in STATUS_OF)
    assert found == status


def test_every_error_has_its_row() -> None:
    inside = {"ConfigError", "TaskError", "ModelError"}  # no caller of the routes meets these
    inside |= {"NotFound", "Conflict"}  # the classes of others
    assert {error.__name__ for error in STATUS_OF} - inside <= set(error_rows())


LIMITS = {
    "request body": LimitsConfig().max_body_bytes == 4 * 1024 * 1024,
    "path and query": limits.MAX_TARGET_BYTES == 8 * 1024,
    "parameters of the query": limits.MAX_PARAMETERS == 100,
    "headers": (limits.MAX_HEADER_BYTES, limits.MAX_HEADERS) == (16 * 1024, 100),
    "JSON of a body": (MAX_DEPTH, MAX_VALUES, MAX_DIGITS) == (64, 50_000, 100),
    "text of a message": LimitsConfig().max_message_bytes == 1024 * 1024,
    "silence inside a body; the whole body": (
        limits.BODY_SILENCE_SECONDS,
        limits.BODY_SECONDS,
    )
    == (10, 60),
    "a request's headers": HEADER_SECONDS == 10,
    "requests of one caller": (at_work.AT_ONCE, at_work.MAX_WAITING) == (8, 1000),
    "bytes of bodies of one caller": (LimitsConfig().body_rate, quotas.BODY_BURST)
    == (8.0 * 1024 * 1024, 32 * 1024 * 1024),
    "running tasks of one caller": LimitsConfig().max_running_tasks == 256,
    "queued tasks of one caller": LimitsConfig().max_queued_tasks == 10_000,
    "stored bytes of one caller": LimitsConfig().max_stored_bytes == 2**30,
    "stored bytes of one task": swarm._TASK_BYTES == 256 * 2**20,
    "large requests of one caller in progress": quotas.MAX_INFLIGHT == 4 * 2**20,
    "histories of one caller in memory": swarm._HISTORY_BYTES == 16 * 2**20,
    "result of an action": swarm._RESULT_BYTES == 2**20,
    "arguments of a tool call": swarm._RESULT_BYTES == 2**20,
    "reply of an agent": swarm._REPLY_BYTES == 4 * 2**20,
    "open streams of one caller": LimitsConfig().max_streams == 256,
    "requests in progress, all callers": LimitsConfig().max_requests == 1000,
    "open streams, all callers": quotas.MAX_OPEN_STREAMS == 5000,
    "open connections": LimitsConfig().max_connections == 10_000,
    "messages of a run": SettingsConfig().task_message_limit == 15,
    "wait for an answer": MAX_TIMEOUT_SECONDS == 3600,
    "a stream's reader that takes nothing": SEND_SECONDS == 30,
}


def test_the_figures_of_the_limits_are_those_of_the_code() -> None:
    [(_, body)] = page.tables("Limits")
    assert [row[0] for row in body] == list(LIMITS)
    assert [name for name, right in LIMITS.items() if not right] == []


def anchors(text: str) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).strip().lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }


@pytest.mark.parametrize("path", ["SPEC.md", "README.md", "examples/README.md"])
def test_links_lead_somewhere(path) -> None:
    file = page.SPEC / path
    for target in re.findall(r"\]\(([^)]+)\)", file.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        found = file.parent / name if name else file
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text("utf-8")), target
