"""How the scripts read questions."""

import pytest

from mail.examples.scripts import WeatherQuestion, asks_for_weather, expressions_in, weather_in


@pytest.mark.parametrize(
    ("text", "places", "days"),
    [
        ("What will the weather in Paris be tomorrow, and what is 17 * 23?", ("Paris",), 1),
        ("What's the outlook for tomorrow in New York?", ("New York",), 1),
        ("weather in paris?", ("paris",), 0),
        ("Will it rain in Berlin in 3 days?", ("Berlin",), 3),
        ("Will it rain in Berlin in two days?", ("Berlin",), 2),
        (
            "Forecast for London, Rio de Janeiro and Rome the day after tomorrow",
            ("London", "Rio de Janeiro", "Rome"),
            2,
        ),
        ("temperature for São Paulo today", ("São Paulo",), 0),
        ("How is the weather?", (), 0),
        ("Will it snow on Monday?", (), 0),
    ],
)
def test_places_and_days_are_read(text: str, places: tuple[str, ...], days: int) -> None:
    assert asks_for_weather(text)
    assert weather_in(text) == WeatherQuestion(places, days, metric=True)


def test_fahrenheit_is_a_unit_and_no_place() -> None:
    assert weather_in("Weather in Paris in Fahrenheit") == WeatherQuestion(
        ("Paris",), 0, metric=False
    )


@pytest.mark.parametrize(
    ("text", "sums"),
    [
        ("what is 17 * 23?", ("17 * 23",)),
        ("What is (2+3)*4?", ("(2+3)*4",)),
        ("17 times 23 plus 1.5", ("17 * 23 + 1.5",)),
        ("2^10 divided by 4, and 3 x 4.", ("2^10 / 4", "3 * 4")),
        ("calculate 1+1; 1+1", ("1+1",)),
        ("(it is 10 - 3)", ("10 - 3",)),
        ("The year 2024 and 3 cats", ()),
        ("In 3 days, at 5", ()),
        ("Hello!", ()),
    ],
)
def test_sums_are_found(text: str, sums: tuple[str, ...]) -> None:
    assert expressions_in(text) == sums


def test_no_more_than_five_are_taken() -> None:
    assert len(expressions_in("; ".join(f"{n} + 1" for n in range(100)))) == 5


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    text = "x " * 5000 + "weather in Paris, 17 * 23"
    assert not asks_for_weather(text)
    assert expressions_in(text) == ()
    assert weather_in(text).places == ()
