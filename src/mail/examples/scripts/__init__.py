"""Scripts that play the example agents: each swarm answers simple questions without a provider.

A script keeps no state: it reads its conversation anew, as a model does. There is a module for each
example; here is the first one, a supervisor with a weather and a math worker, and its relatives
``swarm-alpha`` and ``swarm-beta``, which have one worker each and ask the other swarm's. The
supervisor asks every worker that a question needs at once, waits for the answers and puts them
together; a worker calls its action and answers whoever asked.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mail.examples.scripts.common import Case, read_case, reply, results_of, wait_for
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_WEATHER = re.compile(
    r"\b(?:weather|forecasts?|outlook|temperatures?|rain(?:y|ing)?|snow(?:ing)?|sunn?y?|wind(?:y)?"
    r"|umbrella)\b",
    re.IGNORECASE,
)
_NAME = r"[A-ZÀ-Þ][\w'\u2019.-]*(?:\s+(?:(?:de|la|le|of|the|am|an|der)\s+)?[A-ZÀ-Þ][\w'\u2019.-]*)*"
_PLACES = re.compile(rf"\b(?:in|at|for|of|near|and|or)\s+({_NAME})|,\s*({_NAME})")
_LOWER_PLACE = re.compile(r"\b(?:in|at|near)\s+(?!\d)([^\W\d_][\w'\u2019-]*)")
_NO_PLACES: Final = re.compile(
    "an?|and|any|celsius|degrees|fahrenheit|i|is|it|metric|my|the|this|today|tomorrow|what|when"
    "|will|you|your|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may"
    "|june|july|august|(?:septem|octo|novem|decem)ber",
    re.IGNORECASE,
)
_IN_DAYS = re.compile(r"\bin\s+(\d{1,3}|an?|one|two|three|four|five|six|seven)\s+days?\b", re.I)
_NUMBER_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven")
_MAX_DAYS = 14

_OPERATOR_WORDS: Final = (
    (re.compile(r"\b(?:divided|over)\s+by\b|\bover\b", re.I), "/"),
    (re.compile(r"\b(?:multiplied\s+by|times)\b|(?<=\d)\s*x\s*(?=\d)", re.I), "*"),
    (re.compile(r"\bto\s+the\s+power\s+of\b", re.I), "**"),
    (re.compile(r"\bplus\b", re.I), "+"),
    (re.compile(r"\bminus\b", re.I), "-"),
    (re.compile(r"\b(?:modulo|mod)\b", re.I), "%"),
)
_SUM = re.compile(
    r"[-+]?[\d(.](?:[\d\s.()+*/%^\u00d7\u00f7\u00b7\u2212-]|(?<=\d)e[+-]?(?=\d))*[\d)]"
)
_HAS_OPERATOR = re.compile(r"[\d)]\s*[-+*/%^\u00d7\u00f7\u00b7\u2212]+\s*[-+(\d.]")
_LONGEST = 1_000
_READ = 10 * _LONGEST
"""The part of a text that is read: questions are short, and patterns are slow on long texts."""
_MOST = 5


@dataclass(frozen=True, slots=True)
class WeatherQuestion:
    """Places, in the order in which they are named, and the day: 0 for today."""

    places: tuple[str, ...]
    days_ahead: int
    metric: bool

    @property
    def day(self) -> str:
        """The day in words."""
        near = ("today", "tomorrow")
        days = self.days_ahead
        return near[days] if days < len(near) else f"in {days} days"


def asks_for_weather(text: str) -> bool:
    """Tell whether a text is about the weather."""
    return _WEATHER.search(text[:_READ]) is not None


def weather_in(text: str) -> WeatherQuestion:
    """Read places, day and units from a text about the weather."""
    text = text[:_READ]
    metric = re.search(r"\bfahrenheit\b", text, re.IGNORECASE) is None
    return WeatherQuestion(_places(text), _days(text), metric)


def expressions_in(text: str) -> tuple[str, ...]:
    """Return the sums in a text, each as an expression: ``17 times 23`` gives ``17 * 23``."""
    text = text[:_READ]
    for words, sign in _OPERATOR_WORDS:
        text = words.sub(f" {sign} ", text)
    found = []
    for match in _SUM.finditer(text[:_READ]):
        expression = _balanced(" ".join(match.group().split()))
        if _HAS_OPERATOR.search(expression) and expression not in found:
            found.append(expression)
    return tuple(found[:_MOST])


def _places(text: str) -> tuple[str, ...]:
    named = (first or second for first, second in _PLACES.findall(text))
    places = [place.rstrip(".'\u2019-") for place in named if not _NO_PLACES.fullmatch(place)]
    if not places:
        lower = _LOWER_PLACE.findall(text)
        places = [place for place in lower if not _NO_PLACES.fullmatch(place)]
    return tuple(dict.fromkeys(places))[:_MOST]


def _days(text: str) -> int:
    lowered = text.casefold()
    if "day after tomorrow" in lowered:
        return 2
    if "tomorrow" in lowered:
        return 1
    match = _IN_DAYS.search(text)
    if match is None:
        return 0
    count = match.group(1).casefold()
    if count.isdigit():
        return min(int(count), _MAX_DAYS)
    return _NUMBER_WORDS.index(count) if count in _NUMBER_WORDS else 1


def _balanced(expression: str) -> str:
    """Cut parentheses that belong to the sentence around the expression."""
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:].strip()
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1].strip()
    return expression


# --- the agents -----------------------------------------------------------------------------------

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
