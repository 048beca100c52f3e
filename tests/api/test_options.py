"""The allow-list of extra keyword arguments."""

from typing import Any

import pytest

from mail.api.posting import read_options
from mail.errors import MAILError


def test_without_options_there_are_defaults() -> None:
    assert read_options({}) == (3600.0, {})


def test_every_documented_option_is_read() -> None:
    given = {
        "timeout": 5,
        "max_steps": "7",
        "breakpoint_tool_call_result": {"content": "ok"},
        "breakpoint_tool_caller": "boss",
        "stream_tokens": True,
    }
    told = {"breakpoint_tool_call_result": {"content": "ok"}, "stream_tokens": True}
    assert read_options(given, 9.0) == (5, {"max_steps": 7, **told})


def test_no_limit_differs_from_no_word_about_it() -> None:
    assert read_options({"max_steps": None}) == (3600.0, {"max_steps": None})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_step": 5}, "unknown option 'max_step'.*Did you mean 'max_steps'?"),
        ({"self": 1}, "unknown option 'self'; allowed are timeout, max_steps"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": "5"}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"max_steps": "many"}, "max_steps must be an int or null"),
        ({"max_steps": 0}, "max_steps must be an int or null"),
        ({"max_steps": True}, "max_steps must be an int or null"),
        ({"max_steps": 1.5}, "max_steps must be an int or null"),
        ({"stream_tokens": 1}, "stream_tokens must be true or false"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(MAILError, match=text) as caught:
        read_options(given)
    assert isinstance(caught.value, ValueError)
