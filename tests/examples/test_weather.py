"""The made-up forecasts."""

import re

import pytest
from mail.examples.weather_dummy.actions import get_weather_forecast

from mail.errors import ToolError

_SHAPE = re.compile(
    r"(?P<place>.+), (?P<day>.+): (?P<sky>[a-z ]+), high (?P<high>-?\d+) (?P<unit>°[CF]), "
    r"low (?P<low>-?\d+) °[CF], chance of rain (?P<rain>\d+) %"
)


async def _forecast(**args: object) -> dict[str, str]:
    match = _SHAPE.fullmatch(await get_weather_forecast(args))
    assert match is not None
    return match.groupdict()


async def test_the_same_place_and_day_always_have_the_same_weather() -> None:
    first = await _forecast(location="Paris", days_ahead=1)
    again = await _forecast(location=" paris ", days_ahead=1)
    assert (first["place"], first["day"]) == ("Paris", "tomorrow")
    assert first | {"place": ""} == again | {"place": ""}


async def test_places_and_days_differ() -> None:
    seen = {
        (await get_weather_forecast({"location": place, "days_ahead": day})).partition(": ")[2]
        for place in ("Paris", "London", "Lima")
        for day in range(5)
    }
    assert len(seen) > 10


async def test_the_day_is_named() -> None:
    days = [(await _forecast(location="Oslo", days_ahead=n))["day"] for n in (0, 1, 2, 14)]
    assert days == ["today", "tomorrow", "in 2 days", "in 14 days"]
    assert (await _forecast(location="Oslo"))["day"] == "today"


async def test_fahrenheit_is_the_same_weather() -> None:
    celsius = await _forecast(location="Rome")
    fahrenheit = await _forecast(location="Rome", metric=False)
    assert fahrenheit["unit"] == "°F"
    assert int(fahrenheit["high"]) == round(int(celsius["high"]) * 9 / 5 + 32)
    assert celsius["sky"] == fahrenheit["sky"]


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({}, "location"),
        ({"location": "  "}, "location"),
        ({"location": "x" * 101}, "location"),
        ({"location": "Paris", "days_ahead": -1}, "days_ahead"),
        ({"location": "Paris", "days_ahead": 15}, "days_ahead"),
    ],
)
async def test_arguments_out_of_range_are_named(args: dict[str, object], field: str) -> None:
    with pytest.raises(ToolError, match=f"^{field} must be"):
        await get_weather_forecast(args)
