"""Plays the supervisor with a weather and a math worker, which may be in another swarm.

The supervisor asks every worker that a question needs at once, waits for the answers and puts them
together; a worker calls its action and answers whoever asked.
"""

from collections.abc import Collection, Sequence
from typing import Final

from mail.examples.questions import asks_for_weather, expressions_in, weather_in
from mail.examples.scripts.common import Case, read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_HELP = (
    "I can look up the weather and calculate. Ask me, for example: What will the weather in Paris "
    "be tomorrow, and what is 17 * 23?"
)
_WHERE = "For which place would you like the weather?"
_NO_WEATHER = "I can only tell the weather. Please name a place, for example: Paris, tomorrow."
_NO_SUM = "I can only calculate. Please send an arithmetic expression, for example: 17 * 23."
_SUBJECTS: Final = ("Forecast", "Calculation")


def _supervisor(weather: str, math: str) -> Script:
    """Return the script of a supervisor whose workers have these addresses."""

    def supervise(view: ScriptView) -> Sequence[Call]:
        case = read_case(view)
        needs = zip((weather, math), _SUBJECTS, _needs(case.question.body), strict=True)
        asked = {worker: (subject, body) for worker, subject, body in needs if body}
        if asked and case.fresh and not view.forced:
            return [
                call("send_request", target=worker, subject=subject, body=body)
                for worker, (subject, body) in asked.items()
            ]
        missing = case.missing(asked)
        if missing and not case.stuck(asked) and not view.forced:
            return [wait_for(missing)]
        return [call("task_complete", finish_message=_answer(case, asked))]

    return supervise


def _needs(text: str) -> tuple[str, str]:
    """Return what a question needs to be asked about the weather, and what to be calculated."""
    forecast = calculation = ""
    if asks_for_weather(text):
        weather = weather_in(text)
        if weather.places:
            units = "" if weather.metric else ", in degrees Fahrenheit"
            places = " and ".join(weather.places)
            forecast = f"Please send the forecast for {places}: {weather.day}{units}."
    sums = expressions_in(text)
    if sums:
        calculation = "Please calculate " + "; ".join(sums)
    return forecast, calculation


def _answer(case: Case, asked: Collection[str]) -> str:
    parts = [case.answers[worker] for worker in asked if worker in case.answers]
    parts += [case.silence_of(worker, asked) for worker in asked if worker not in case.answers]
    if asks_for_weather(case.question.body) and not _needs(case.question.body)[0]:
        parts.append(_WHERE)
    return " ".join(parts) or _HELP


def _weather(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    question = weather_in(request.body)
    results = results_of(view, "get_weather_forecast")
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
    return [reply(request, text)]


def _math(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from() or view.mail
    sums = expressions_in(request.body)
    results = results_of(view, "calculate_expression")
    if not results and view.mail.sender_type != "system" and sums:
        return [call("calculate_expression", expression=expression) for expression in sums]
    lines = [f"{left} = {right}." for left, right in zip(sums, results, strict=False)]
    return [reply(request, " ".join(lines) or _NO_SUM)]


SUPERVISOR: Final[Script] = _supervisor("weather", "math")
"""Plays the supervisor of a swarm with workers named ``weather`` and ``math``."""

ALPHA_SUPERVISOR: Final[Script] = _supervisor("weather", "math@swarm-beta")
"""Plays the supervisor of ``swarm-alpha``, which has nobody who calculates."""

BETA_SUPERVISOR: Final[Script] = _supervisor("weather@swarm-alpha", "math")
"""Plays the supervisor of ``swarm-beta``, which has nobody who knows the weather."""

WEATHER: Final[Script] = _weather
"""Plays the weather worker."""

MATH: Final[Script] = _math
"""Plays the math worker."""
