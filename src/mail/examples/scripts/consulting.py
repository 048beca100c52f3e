"""Plays a chain of delegation: a lead asks a consultant, and the consultant asks an analyst.

Each of them may be in a swarm of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mail.core.compose import Subject
from mail.examples.scripts.common import read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import Mail, ScriptView

_NUMBER = r"\d+(?:\.\d+)?"
_START = re.compile(rf"\b({_NUMBER})\b(?!\s*(?:%|percent|per cent|\.?\d))")
_PERCENT = re.compile(rf"({_NUMBER})\s*(?:%|percent\b|per cent\b)")
_PERIODS = re.compile(r"\b(\d{1,3})\s+(?:days|weeks|months|quarters|years|periods)\b")
_FALLS = re.compile(r"\b(?:fall|shrink|drop|declin|los)\w*", re.IGNORECASE)
_BECOMES = re.compile(rf"({_NUMBER}) at -?{_NUMBER} % per period becomes ({_NUMBER})")
_NEED = (
    "I need a figure, its growth in percent for each period, and a number of periods. For example: "
    "We have 200 orders a week, growing 8 percent a month. What should we plan for in 12 months?"
)
_MORE, _LESS = 1.5, 0.75


@dataclass(frozen=True, slots=True)
class _Growth:
    """A figure, its growth for each period in percent, and the number of periods."""

    start: float
    percent: float
    periods: int


def _growth_in(text: str) -> _Growth | None:
    percent, periods = _PERCENT.search(text), _PERIODS.search(text)
    if percent is None or periods is None:
        return None
    rest = text.replace(percent.group(), "").replace(periods.group(), "")
    start = _START.search(rest)
    if start is None:
        return None
    sign = -1 if _FALLS.search(text) else 1
    return _Growth(float(start.group(1)), sign * float(percent.group(1)), int(periods.group(1)))


def _lead_of(consultant: str) -> Script:
    """Return the script of a lead whose consultant has this address."""
    workers = (consultant,)

    def lead(view: ScriptView) -> Sequence[Call]:
        case = read_case(view)
        if case.fresh and not view.forced:
            body = f"A user asks: {case.question.body}"
            return [call("send_request", target=consultant, subject="Advice", body=body)]
        missing = case.missing(workers)
        if missing and not case.stuck(workers) and not view.forced:
            return [wait_for(missing)]
        answer = case.answers.get(consultant) or case.silence_of(consultant, workers)
        return [call("task_complete", finish_message=answer)]

    return lead


def _consultant_of(analyst: str) -> Script:
    """Return the script of a consultant whose analyst has this address."""

    def asks(mail: Mail) -> bool:
        return mail.sender_type != "system" and mail.sender != analyst

    def consult(view: ScriptView) -> Sequence[Call]:
        request = next((mail for mail in reversed(view.mails) if asks(mail)), view.mail)
        if view.mail.sender == analyst:
            return [reply(request, _advice(view.body))]
        if view.mail.sender_type == "system" and view.mail.subject == Subject.DELIVERY_DELAYED:
            return [wait_for([analyst])]
        if view.mail.sender_type == "system":
            return [reply(request, f"I could not get the figure: {' '.join(view.body.split())}")]
        growth = _growth_in(view.body)
        if growth is None:
            return [reply(request, _NEED)]
        return [
            call(
                "send_request",
                target=analyst,
                subject="Projection",
                body=f"What does {growth.start:g} become at {growth.percent:g} % over "
                f"{growth.periods} periods?",
            )
        ]

    return consult


def _advice(found: str) -> str:
    match = _BECOMES.search(found)
    if match is None:
        return f"The analyst could not project it: {found}"
    start, end = float(match.group(1)), float(match.group(2))
    ratio = end / start if start else 1.0
    if ratio >= _MORE:
        advice = "add capacity now"
    elif ratio <= _LESS:
        advice = "cut back"
    else:
        advice = "keep things as they are, and look again later"
    return f"Plan for {match.group(2)} ({ratio:.1f} times today's {match.group(1)}): {advice}."


def _analyst(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    results = results_of(view, "project_growth")
    match = re.search(rf"({_NUMBER}) become at (-?{_NUMBER}) % over (\d+) periods", request.body)
    if not results and view.mail.sender_type != "system" and match:
        start, percent = float(match.group(1)), float(match.group(2))
        periods = int(match.group(3))
        return [call("project_growth", start=start, percent=percent, periods=periods)]
    return [reply(request, " ".join(results) or "Please send a figure, percent and periods.")]


LEAD: Final[Script] = _lead_of("consultant")
"""Plays the supervisor of a swarm with a worker named ``consultant``."""

CONSULTANT: Final[Script] = _consultant_of("analyst")
"""Plays the consultant, which asks a worker named ``analyst``."""

REMOTE_LEAD: Final[Script] = _lead_of("consultant@advice")
"""Plays a supervisor whose consultant is in the swarm ``advice``."""

REMOTE_CONSULTANT: Final[Script] = _consultant_of("analyst@figures")
"""Plays a consultant whose analyst is in the swarm ``figures``."""

ANALYST: Final[Script] = _analyst
"""Plays the analyst."""
