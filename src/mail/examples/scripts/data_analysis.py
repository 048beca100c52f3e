"""Plays a broadcast: a lead asks the whole team, and only those who can help answer."""

import re
from collections.abc import Sequence
from typing import Final

from mail.examples.data_analysis import GROUPS, NUMBERS
from mail.examples.scripts.common import read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_BY = re.compile(r"\b(?:by|per|each|which|every)\s+(month|quay)", re.IGNORECASE)
_HELP = (
    "The table has the columns ships and cargo, by month and quay. Ask me, for example: How much "
    "cargo came in, and which quay had more?"
)


def _figures(text: str) -> str | None:
    return next((name for name in NUMBERS if name in text.casefold()), None)


def _group(text: str) -> str | None:
    match = _BY.search(text)
    found = match.group(1).casefold() if match else None
    return found if found in GROUPS else None


def _lead(view: ScriptView) -> Sequence[Call]:
    case = read_case(view)
    question = case.question.body
    if _figures(question) is None:
        return [call("task_complete", finish_message=_HELP)]
    asked = ["statistician", *(["comparer"] if _group(question) else [])]
    if case.fresh and not view.forced:
        return [call("send_broadcast", subject="A question", body=question, targets=[])]
    missing = case.missing(asked)
    if missing and not case.stuck(asked) and not view.forced:
        return [wait_for(missing)]
    parts = [case.answers.get(name) or case.silence_of(name, asked) for name in asked]
    return [
        call("task_complete", finish_message=" ".join(f"{part.rstrip('.')}." for part in parts))
    ]


def _statistician(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    results = results_of(view, "describe_column")
    if results:
        return [reply(request, " ".join(results))]
    name = _figures(request.body)
    if name is None or view.mail.sender_type == "system":
        return [call("acknowledge_broadcast", note="about none of my columns")]
    return [call("describe_column", column=name)]


def _comparer(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    results = results_of(view, "compare_groups")
    if results:
        return [reply(request, " ".join(results))]
    name, by = _figures(request.body), _group(request.body)
    if name is None or by is None or view.mail.sender_type == "system":
        return [call("acknowledge_broadcast", note="nothing to compare")]
    return [call("compare_groups", column=name, by=by)]


LEAD: Final[Script] = _lead
"""Plays the supervisor of a swarm with workers named ``statistician`` and ``comparer``."""

STATISTICIAN: Final[Script] = _statistician
"""Plays the agent that describes columns."""

COMPARER: Final[Script] = _comparer
"""Plays the agent that compares groups."""
