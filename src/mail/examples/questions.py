"""Reading simple English questions about weather and sums, for the scripts of the examples."""

import re
from dataclasses import dataclass
from typing import Final

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
"""How much of a text is read: a question is short, and the patterns take long over a long one."""
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
