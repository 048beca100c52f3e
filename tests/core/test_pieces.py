"""JSON in pieces is the same JSON, and no piece is large."""

import json
from typing import Any

import pytest
from pydantic_core import to_json

from mail.core import pieces
from mail.core.events import TaskEvent
from mail.core.pieces import PIECE, Listed, Spelled, joined, json_line, json_pieces

LONG = 'a"\\\n\u2028\ud800é漢' * PIECE


@pytest.mark.parametrize(
    "value",
    [
        None,
        -1.5,
        "",
        [],
        {},
        "\x00\x85\u2029\udfff",
        [1, [True, {"a": [], "b": {}}], "é"],
        {"k\n": LONG, "l": [LONG, 0]},
        list(range(PIECE)),
        [[], {}, "", None] * PIECE,
        [10**4000] * 100,
        {"k" * PIECE: {"k": ["a" * 9, -1.5, 1e-05, "\x7f"]}},
        {f"k{n}": n for n in range(PIECE)},
        [{f"k{n}": [n, {"é": LONG[: n % 40]}]} for n in range(PIECE // 4)],
        {"a": 1, "b": LONG, "c": [2, LONG, 3, 4], "d": {}, "e": LONG},
    ],
)
def test_pieces_are_the_line_of_the_value(value: Any) -> None:
    made = list(json_pieces(value))
    assert "".join(made) == json_line(value)
    assert json.loads("".join(made)) == value
    assert max(map(len, made)) <= 7 * PIECE


def test_what_is_short_is_the_line_of_the_value_whatever_character_or_number_it_has() -> None:
    plain = [chr(code) * 2 for code in range(0x3000)] + ["\ufeff\uffff\U0001f600", "\\u007f"]
    large = [10**digits for digits in range(1, 40)]
    floats = [0.0, -0.0, 0.1 + 0.2, float("inf"), 5e-324, 1.7976931348623157e308]
    floats += [sign * 10.0**power / 3 for power in range(-20, 30) for sign in (1, -1)]
    for value in (*plain, *large, *floats, True, None):
        assert "".join(json_pieces({"k": [value]})) == json_line({"k": [value]})


def test_texts_and_lists_are_made_when_they_are_needed() -> None:
    made = []

    def parts() -> Any:
        for number in range(10):
            made.append(number)
            yield str(number) * PIECE

    told = json_pieces({"text": Spelled(parts()), "list": Listed(iter(["1", "2"]))})
    first = next(told)
    assert made == [0]
    whole = json.loads(first + "".join(told))
    assert whole == {"text": "".join(str(n) * PIECE for n in range(10)), "list": [1, 2]}
    assert made == list(range(10))


def test_many_small_values_are_encoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []

    def noted(value: object) -> bytes:
        encoded.append(value)
        return to_json(value)

    monkeypatch.setattr(pieces, "to_json", noted)
    values = {f"name {number}": {} for number in range(20_000)}
    text = "".join(json_pieces({"tools": [{"parameters": values}]}))
    assert text == json_line({"tools": [{"parameters": values}]})
    assert len(encoded) < 4 * len(text) / PIECE


def test_small_texts_are_joined() -> None:
    assert list(joined(["a"] * 10)) == ["a" * 10]
    assert [len(piece) for piece in joined(["a" * PIECE, "b", "c" * PIECE])] == [PIECE, PIECE + 1]


@pytest.mark.parametrize("body", ["short", "<&>\r\x00" * PIECE])
@pytest.mark.parametrize("kind", ["new_message", "task_complete", "tool_call"])
def test_a_large_event_has_the_same_data_as_a_small_one(body: str, kind: str) -> None:
    address = {"address_type": "agent", "address": "a"}
    message = {"sender": address, "recipient": address, "subject": "s", "body": body}
    extra = {"full_message": {"timestamp": "2026-01-01T00:00:00+00:00", "message": message}}
    size = len(json.dumps(extra))
    event = TaskEvent(task_id="t", kind=kind, timestamp="now", seq=7, extra=extra, size=size)
    assert event.is_large == (body != "short")
    assert "".join(event.data_pieces()) == event.data_text()
    for as_text in (False, True):
        record = event.to_record() | ({"data": event.data_text()} if as_text else {})
        assert json.loads("".join(event.record_pieces(as_text=as_text))) == record
