"""A history is cut only where both parts make sense to a provider on their own."""

from hypothesis import given
from hypothesis import strategies as st

from mail.llm.compress import split_at
from mail.llm.history import NO_RESULT, Replied, Said, conversation
from tests.llm.histories import (
    SYSTEM,
    USER,
    Entry,
    answer,
    chat,
    histories,
    replied,
)


def called(entry: Entry) -> list[str]:
    uses = entry["content"] if isinstance(entry.get("content"), list) else []
    ids = [use["id"] for use in uses if use.get("type") == "tool_use"]
    ids += [call["id"] for call in entry.get("tool_calls", ())]
    return ids + ([entry["call_id"]] if entry.get("type") == "function_call" else [])


def answered(entry: Entry) -> str | None:
    return entry.get("tool_call_id") or (entry.get("call_id") if "output" in entry else None)


def is_whole(left: list[Entry], right: list[Entry], *, wait: bool) -> bool:
    """Tell whether both parts stand alone, and the left one is more than a system prompt."""
    calls = {call_id for entry in left for call_id in called(entry)}
    results = {answered(entry) for entry in [*left, *right]}
    if calls & {answered(entry) for entry in right} or (wait and calls - results):
        return False
    if all(entry == SYSTEM for entry in left):
        return False
    if answered(right[0]) is not None:
        return False
    # A reply stays with the mail that it answers, and an output item with those before it.
    return not replied(right[0]) or answered(left[-1]) is not None


@given(histories(), st.integers(1, 6), st.booleans())
def test_the_cut_is_the_latest_one_that_leaves_two_whole_parts(
    history: list[Entry], keep: int, wait: bool
) -> None:
    possible = [
        place
        for place in range(1, len(history) - keep + 1)
        if is_whole(history[:place], history[place:], wait=wait)
    ]
    assert split_at(history, keep, wait=wait) == max(possible, default=0)


@given(histories(), st.integers(1, 6))
def test_each_part_reads_as_it_did_in_the_whole(history: list[Entry], keep: int) -> None:
    cut = split_at(history, keep)

    def read(part: list[Entry]) -> list[object]:
        return [
            exchange.message
            if isinstance(exchange, Said)
            else (exchange.entries, exchange.calls, exchange.results)
            for exchange in conversation(part)
        ]

    whole = read(history)
    assert read(history[:cut]) + read(history[cut:]) == whole
    assert all(
        NO_RESULT not in exchange.results
        for exchange in conversation(history[:cut])
        if isinstance(exchange, Replied)
    )


def test_the_same_id_in_two_turns_counts_for_each() -> None:
    turn = [USER, *chat("a"), answer(chat, "a")]
    assert split_at(turn * 3, 4) == 3


def test_a_result_of_no_call_begins_nothing() -> None:
    bare = {"role": "tool", "content": "resumed"}
    assert split_at([USER, *chat(), bare, USER], 2) == 0
    assert split_at([USER, *chat(), bare, USER], 1) == 3
