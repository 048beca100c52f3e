"""The specification names what the code has: its tables cannot drift from it unseen."""

import re
from pathlib import Path

import pytest

from mail.clock import SystemClock
from mail.core.compose import Composer, Subject
from mail.core.events import EVENT_KINDS, STREAM_KINDS, TERMINAL_KINDS
from mail.core.runtime.postal import tier_of
from mail.core.tasks import TaskState
from mail.core.tools.catalogue import CATALOGUE
from mail.core.wire import MAIL_MESSAGE_TYPES
from mail.errors import (
    AlreadyAnswered,
    Forbidden,
    MAILError,
    ProtocolError,
    ShuttingDown,
    StoreError,
    TaskFailed,
    TaskPaused,
    TaskTimeout,
    Unauthenticated,
    UnknownAgent,
    UnknownTask,
)
from mail.server.errors import STATUS_OF
from mail.version import PROTOCOL_VERSION

SPEC = Path(__file__).parents[2] / "spec"
TEXT = (SPEC / "SPEC.md").read_text("utf-8")
SECTIONS = {
    part.splitlines()[0].lstrip("0123456789. "): part
    for part in re.split(r"^## ", TEXT, flags=re.M)
}


def first_cells(section: str) -> list[list[str]]:
    """Return the names in the first column of a section's tables."""
    rows = [line.split("|")[1] for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", cell) for cell in rows]


def test_it_is_the_protocol_that_the_package_speaks() -> None:
    assert TEXT.startswith(f"# MAIL, protocol {PROTOCOL_VERSION}\n")


def test_the_tools_are_those_of_the_catalogue() -> None:
    listed = {name for names in first_cells("Tools") for name in names}
    assert listed == set(CATALOGUE)
    for line in SECTIONS["Tools"].splitlines():
        match = re.match(r"\| `(\w+)` \| (\w+) \| ([^|]*)", line)
        if match:
            spec = CATALOGUE[match[1]]
            assert match[2] == spec.audience
            assert re.findall(r"`(\w+)`", match[3]) == list(spec.model.model_fields)


def test_the_kinds_of_messages_are_those_of_the_code() -> None:
    listed = [names[0] for names in first_cells("Messages")]
    assert [name for name in listed if name in MAIL_MESSAGE_TYPES] == MAIL_MESSAGE_TYPES


def test_the_states_are_those_of_the_code() -> None:
    listed = {name for names in first_cells("Tasks") for name in names}
    assert listed == set(TaskState)


def test_the_events_are_known_to_the_code() -> None:
    section = SECTIONS["Events"]
    assert {name for names in first_cells("Events") for name in names} <= EVENT_KINDS
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
    row = next(line for line in SECTIONS["Priority"].splitlines() if line.startswith(f"| {tier} |"))
    word = {"broadcast_complete": "completion"}.get(kind, kind) if sender == "agent" else sender
    assert word in row


def status_of(error: type[MAILError]) -> int:
    return next(STATUS_OF[cls] for cls in error.__mro__ if cls in STATUS_OF)


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ((ProtocolError, UnknownAgent), 400),
        ((Unauthenticated,), 401),
        ((Forbidden,), 403),
        ((UnknownTask,), 404),
        ((TaskPaused, AlreadyAnswered), 409),
        ((TaskFailed,), 502),
        ((ShuttingDown, StoreError), 503),
        ((TaskTimeout,), 504),
    ],
)
def test_the_statuses_are_those_of_the_server(errors, status) -> None:
    assert {status_of(error) for error in errors} == {status}
    assert f"{status}" in SECTIONS["Errors"]


@pytest.mark.parametrize("page", [SPEC / "SPEC.md", SPEC / "examples" / "README.md"])
def test_links_lead_somewhere(page) -> None:
    text = page.read_text("utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).strip().lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings
        else:
            assert (page.parent / target).is_file()
