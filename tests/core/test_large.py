"""JSON that is one line for every reader, and large texts that hold up nobody."""

import asyncio
import json
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from mail.core.events import TaskEvent
from mail.core.large import LARGE, in_turn, json_line, slices

LONG = 'a"\\\n\u2028\ud800é漢' * LARGE


@pytest.mark.parametrize(
    "value",
    [
        None,
        -1.5,
        "",
        [],
        {},
        "\x00\x85\u2029\udfff",
        "".join(map(chr, range(0x3000))) + "\ufeff\uffff\U0001f600\\u007f",
        [1, [True, {"a": [], "b": {}}], "é", 5e-324, 1e22],
        {"k\n\u2028": LONG, "l": [LONG, 0]},
        [10**4000] * 100,
    ],
)
def test_a_line_is_the_value_and_nothing_breaks_it(value: Any) -> None:
    line = json_line(value)
    assert json.loads(line) == value
    assert len(line.splitlines()) <= 1
    line.encode()


async def test_large_work_is_done_one_after_the_other_and_the_loop_goes_on() -> None:
    at_work: list[int] = [0]
    most: list[int] = []

    def work() -> str:
        at_work[0] += 1
        most.append(at_work[0])
        asyncio.run(asyncio.sleep(0.01))
        at_work[0] -= 1
        return threading.current_thread().name

    made = asyncio.gather(*(in_turn(LARGE + 1, work) for _ in range(5)))
    passes = 0
    while not made.done():
        passes += 1
        await asyncio.sleep(0.001)
    assert len(set(await made)) == 1 and most == [1] * 5
    assert passes > 5
    assert await in_turn(LARGE, lambda: threading.current_thread()) is threading.main_thread()


async def test_large_work_knows_what_its_request_knows() -> None:
    told: ContextVar[str] = ContextVar("told")
    told.set("mine")
    assert await in_turn(LARGE + 1, told.get) == "mine"


def test_slices_are_the_bytes() -> None:
    for size in (0, 1, LARGE, LARGE + 1, 3 * LARGE):
        found = list(slices(b"x" * size))
        assert b"".join(found) == b"x" * size
        assert all(0 < len(each) <= LARGE for each in found)


@pytest.mark.parametrize("body", ["short", "<&>\r\x00" * LARGE])
@pytest.mark.parametrize("kind", ["new_message", "task_complete", "tool_call"])
async def test_the_text_of_a_record_is_that_of_the_event(body: str, kind: str) -> None:
    address = {"address_type": "agent", "address": "a"}
    message = {"sender": address, "recipient": address, "subject": "s", "body": body}
    extra = {"full_message": {"timestamp": "2026-01-01T00:00:00+00:00", "message": message}}
    size = len(json.dumps(extra))
    event = TaskEvent(task_id="t", kind=kind, timestamp="now", seq=7, extra=extra, size=size)
    for as_text in (False, True):
        record = event.to_record() | ({"data": event.data_text()} if as_text else {})
        assert json.loads(await event.record_text(as_text=as_text)) == record
