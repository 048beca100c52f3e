"""Plays parallel requests: a lead asks two readers at once, and each looks up its part."""

import re
from collections.abc import Sequence
from typing import Final

from mail.examples.scripts.common import plain, read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_READERS: Final = ("reader_a", "reader_b")
_SPLIT = re.compile(r"\?\s*|,?\s+and\s+(?=what|how|why|where|when|which|who|do|does|is|are)", re.I)
_FOUND = re.compile(r"^\[(?P<note>\w+):\d+\] ", re.MULTILINE)
_LONGEST = 300
_NOTHING = "The notes say nothing about: "


def _lead(view: ScriptView) -> Sequence[Call]:
    case = read_case(view)
    asked = dict(zip(_READERS, _parts(case.question.body), strict=False))
    if case.fresh and asked and not view.forced:
        return [
            call("send_request", target=reader, subject="Please look up", body=part)
            for reader, part in asked.items()
        ]
    missing = case.missing(asked)
    if missing and not case.stuck(asked) and not view.forced:
        return [wait_for(missing)]
    found = [case.answers.get(reader) or case.silence_of(reader, asked) for reader in asked]
    return [call("task_complete", finish_message=" ".join(found) or "What shall we look up?")]


def _parts(question: str) -> list[str]:
    """Split a question in two at most, at its question marks and at 'and what', 'and how', …"""
    parts = [" ".join(part.split()) for part in _SPLIT.split(question)]
    parts = [part for part in parts if part]
    return [part[:_LONGEST] for part in [*parts[:1], " ".join(parts[1:])] if part]


def _reader(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    if results_of(view, "read_note"):
        best = plain(view.result_of("search_notes") or "").splitlines()[0]
        citation, _, text = best.partition("] ")
        return [reply(request, f"{text} {citation}]")]
    found = results_of(view, "search_notes")
    if not found:
        return [call("search_notes", query=request.body[:_LONGEST], limit=2)]
    match = _FOUND.match(found[0])
    if match is None:
        return [reply(request, f"{_NOTHING}{request.body}.")]
    return [call("read_note", note=match["note"])]


LEAD: Final[Script] = _lead
"""Plays the supervisor of a swarm with workers named ``reader_a`` and ``reader_b``."""

READER: Final[Script] = _reader
"""Plays a reader."""
