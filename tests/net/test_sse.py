"""The event-stream parser, whatever way its bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.net.sse import SSEEvent, SSEParser

STREAM = (
    "\ufeff: a comment\r\n\r\n"
    'id: 1\r\nevent: new_message\r\ndata: {"a":"größe 🌍"}\r\n\r\n'
    "data: one\ndata:two\ndata\ndata:   three\n\n"
    "event: ping\r\r"
    "id: 7\rretry: 2000\rdata: x\r\r"
    "event: lost\ndata: no end\n"
).encode()
EVENTS = [
    SSEEvent("new_message", '{"a":"größe 🌍"}', "1"),
    SSEEvent("message", "one\ntwo\n\n  three"),
    SSEEvent("ping", None),
    SSEEvent("message", "x", "7", 2000),
]


def parse(*chunks: bytes) -> list[SSEEvent]:
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_all_line_ends_comments_and_fields_are_understood() -> None:
    assert parse(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_chunking_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parse(*(STREAM[a:b] for a, b in pairwise(edges))) == EVENTS


LINE = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(
        st.tuples(LINE.filter(bool), st.lists(LINE, min_size=1, max_size=3), st.none() | LINE),
        max_size=6,
    ),
    st.sampled_from(["\r\n", "\n", "\r"]),
    st.data(),
)
def test_what_was_written_is_read_back(
    events: list[tuple[str, list[str], str | None]], end: str, data: st.DataObject
) -> None:
    text = ""
    for name, lines, event_id in events:
        text += "" if event_id is None else f"id: {event_id}{end}"
        text += f"event: {name}{end}" + "".join(f"data: {line}{end}" for line in lines) + end
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    expected = [SSEEvent(name, "\n".join(lines), event_id) for name, lines, event_id in events]
    assert parse(raw[:cut], raw[cut:]) == expected


def test_an_id_belongs_to_its_own_event_only() -> None:
    assert [e.id for e in parse(b"id: 3\ndata: a\n\ndata: b\n\n")] == ["3", None]


@given(st.lists(st.sampled_from([": note", "retry: 1500", "retry:20", "retry: x", "data: a", ""])))
def test_the_newest_retry_counts_whether_or_not_an_event_has_it(lines: list[str]) -> None:
    parser = SSEParser()
    events = parser.feed("".join(f"{line}\r\n" for line in lines).encode())
    asked = [int(line.partition(":")[2]) for line in lines if line[-1:] == "0"]
    assert parser.reconnect_ms == (asked[-1] if asked else None)
    assert all(event.data in ("a", *("\n".join("a" * n) for n in range(2, 40))) for event in events)


def test_an_unusable_id_or_retry_is_ignored() -> None:
    assert parse(b"id: a\0b\nretry: soon\ndata: x\n\n") == [SSEEvent("message", "x")]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert parse(b"data: \xff\n\n") == [SSEEvent("message", "\ufffd")]


def test_an_event_without_end_is_refused_when_it_grows_too_large() -> None:
    parser = SSEParser(max_event_bytes=100)
    parser.feed(b"data: " + b"x" * 60)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        parser.feed(b"x" * 60)
