"""Scripts that play the example agents: the swarm answers simple questions without a provider.

The supervisor asks every worker that a question needs at once, waits for the answers and puts them
together; a worker calls its action and answers whoever asked. Scripts keep no state: each reads its
conversation anew, as a model does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mail.examples.questions import asks_for_weather, expressions_in, weather_in
from mail.llm.script import Call, Script, call
from mail.llm.script_view import Mail, ScriptView

__all__ = ["MATH", "SUPERVISOR", "WEATHER"]

_PEOPLE = ("user", "admin")
_HELP = (
    "I can look up the weather and calculate. Ask me, for example: What will the weather in Paris "
    "be tomorrow, and what is 17 * 23?"
)
_WHERE = "For which place would you like the weather?"
_NO_WEATHER = "I can only tell the weather. Please name a place, for example: Paris, tomorrow."
_NO_SUM = "I can only calculate. Please send an arithmetic expression, for example: 17 * 23."


@dataclass(frozen=True, slots=True)
class _Case:
    """A question and how far it is: what each worker is asked, what came back, what failed.

    ``fresh`` tells that nothing has come in since the question.
    """

    question: Mail
    fresh: bool
    asked: Mapping[str, str]
    answers: Mapping[str, str]
    failures: Mapping[str, str]

    @property
    def missing(self) -> list[str]:
        return [w for w in self.asked if w not in self.answers and w not in self.failures]


def _supervise(view: ScriptView) -> Sequence[Call]:
    case = _read_case(view)
    if case.asked and case.fresh and not view.forced:
        return [
            call("send_request", target=worker, subject=_SUBJECTS[worker], body=body)
            for worker, body in case.asked.items()
        ]
    stuck = not case.fresh and view.mail.sender_type == "system" and not case.failures
    if case.missing and not stuck and not view.forced:
        return [call("await_message", reason=f"waiting for {' and '.join(case.missing)}")]
    return [call("task_complete", finish_message=_answer(case, view.mail))]


def _read_case(view: ScriptView) -> _Case:
    at = max((n for n, m in enumerate(view.mails) if m.sender_type in _PEOPLE), default=0)
    question = view.mails[at] if view.mails else view.mail
    since = view.mails[at + 1 :]
    asked = _needs(question.body)
    answers = {m.sender: m.body for m in since if m.sender_type == "agent" and m.sender in asked}
    failures = {
        worker: mail.body
        for mail in since
        for worker in asked
        if mail.sender_type == "system" and f"'{worker}'" in mail.body
    }
    return _Case(question, not since, asked, answers, failures)


def _needs(text: str) -> dict[str, str]:
    needs = {}
    if asks_for_weather(text):
        weather = weather_in(text)
        if weather.places:
            units = "" if weather.metric else ", in degrees Fahrenheit"
            places = " and ".join(weather.places)
            needs["weather"] = f"Please send the forecast for {places}: {weather.day}{units}."
    sums = expressions_in(text)
    if sums:
        needs["math"] = "Please calculate " + "; ".join(sums)
    return needs


def _answer(case: _Case, newest: Mail) -> str:
    parts = [case.answers[worker] for worker in case.asked if worker in case.answers]
    for worker in case.asked:
        if worker not in case.answers:
            reason = case.failures.get(worker, "" if case.fresh else newest.body)
            why = f" ({' '.join(reason.split())})" if reason else ""
            parts.append(f"I got no answer from '{worker}'{why}.")
    if asks_for_weather(case.question.body) and "weather" not in case.asked:
        parts.append(_WHERE)
    return " ".join(parts) or _HELP


def _weather(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    question = weather_in(request.body)
    results = _results(view, "get_weather_forecast")
    if not results and view.mail.sender_type != "system" and question.places:
        return [
            call(
                "get_weather_forecast",
                location=place,
                days_ahead=question.days_ahead,
                metric=question.metric,
            )
            for place in question.places
        ]
    text = " ".join(f"Weather in {result}." for result in results) or _NO_WEATHER
    return [_reply(request, text)]


def _math(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    sums = expressions_in(request.body)
    results = _results(view, "calculate_expression")
    if not results and view.mail.sender_type != "system" and sums:
        return [call("calculate_expression", expression=expression) for expression in sums]
    lines = [f"{left} = {right}." for left, right in zip(sums, results, strict=False)]
    return [_reply(request, " ".join(lines) or _NO_SUM)]


def _results(view: ScriptView, tool: str) -> list[str]:
    """Return the results that came in since the agent's last reply, from whomever they came."""
    fresh = [result.content for result in view.new_results if result.tool == tool]
    return [_plain(content) for content in fresh]


def _plain(content: str) -> str:
    if content.startswith("ERROR"):
        return "no result (" + content.partition(": ")[2] + ")"
    return content.removeprefix("SUCCESS: ")


def _reply(request: Mail, text: str) -> Call:
    return call("send_response", target=request.sender, subject=f"Re: {request.subject}", body=text)


_SUBJECTS: Final[Mapping[str, str]] = {"weather": "Forecast", "math": "Calculation"}

SUPERVISOR: Final[Script] = _supervise
"""Plays the supervisor of a swarm with workers named ``weather`` and ``math``."""

WEATHER: Final[Script] = _weather
"""Plays the weather worker."""

MATH: Final[Script] = _math
"""Plays the math worker."""
