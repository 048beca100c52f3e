"""The actions of the examples: what they return, and what they refuse."""

import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mail.examples.analyst_dummy.actions import project_growth
from mail.examples.research.actions import read_note, search_notes
from mail.examples.support.actions import look_up_order, refund_order

from mail.errors import ToolError
from mail.examples.data_analysis import (
    GROUPS,
    NUMBERS,
    STATISTICS,
    column,
    compare_groups,
    describe_column,
    grouped,
)
from mail.examples.research import notes, search
from mail.examples.support import ORDERS

# --- the analyst -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"start": 200, "percent": 8, "periods": 12}, "200 at 8 % per period becomes 503.6"),
        ({"start": 100, "percent": -50, "periods": 2}, "100 at -50 % per period becomes 25.0"),
        ({"start": 0.5, "percent": 0, "periods": 120}, "0.5 at 0 % per period becomes 0.5"),
        ({"start": 7, "percent": -100, "periods": 1}, "7 at -100 % per period becomes 0.0"),
    ],
)
async def test_growth_is_projected(args: dict[str, Any], expected: str) -> None:
    assert await project_growth(args) == expected


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"start": -1}, "start must be a number from 0"),
        ({"start": "200"}, "start must be"),
        ({"start": True}, "start must be"),
        ({"start": float("nan")}, "start must be"),
        ({"start": float("inf")}, "start must be"),
        ({"start": None}, "start must be"),
        ({"percent": 1001}, "percent must be a number from -100 to 1000"),
        ({"percent": -101}, "percent must be"),
        ({"periods": 0}, "periods must be a whole number from 1 to 120"),
        ({"periods": 10**9}, "periods must be"),
        ({"periods": 1.5}, "periods must be"),
        ({"percent": 1000, "periods": 120}, "too large"),
    ],
)
async def test_a_projection_is_bounded(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await project_growth({"start": 200, "percent": 8, "periods": 12} | changed)


# --- the notes ---------------------------------------------------------------------------------


async def test_the_notes_are_found_by_their_words_whatever_the_ending() -> None:
    assert (await search_notes({"query": "What holds a dune together?"})).startswith("[dunes:2]")
    first, second = (await search_notes({"query": "lighthouse keeper", "limit": 2})).splitlines()
    assert first.startswith("[lighthouses:3]")
    assert second.startswith("[lighthouses:")


async def test_without_a_hit_the_notes_are_named() -> None:
    found = await search_notes({"query": "Napoleon"})
    assert found.startswith("no passage found; there are notes on dunes, lighthouses")


async def test_a_note_is_read_with_its_citations() -> None:
    lines = (await read_note({"note": "tides"})).splitlines()
    assert lines[0] == "Tides"
    assert [line.split(" ")[0] for line in lines[1:]] == ["[tides:1]", "[tides:2]", "[tides:3]"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "tides.txt", "", None, 5, "x" * 10_000])
async def test_only_notes_can_be_read(name: object) -> None:
    with pytest.raises(ToolError, match="there is no note '") as raised:
        await read_note({"note": name})
    assert len(str(raised.value)) < 400


async def test_a_typing_error_in_a_name_gets_a_hint() -> None:
    with pytest.raises(ToolError, match="Did you mean 'tides'"):
        await read_note({"note": "tide"})


@pytest.mark.parametrize(
    "args",
    [
        {}, {"query": ""}, {"query": " "}, {"query": "x" * 301}, {"query": 5},
        {"query": "x", "limit": 0}, {"query": "x", "limit": 11}, {"query": "x", "limit": True},
    ],
)  # fmt: skip
async def test_a_search_is_bounded(args: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match=r"query must be|limit must be"):
        await search_notes(args)


@given(st.text(max_size=300), st.integers(1, 10))
@settings(max_examples=100, deadline=None)
def test_any_query_finds_passages_of_the_notes(query: str, limit: int) -> None:
    known = [passage for note in notes().values() for passage in note.passages]
    found = search(query, limit)
    assert len(found) <= limit
    assert all(passage in known for passage in found)


# --- the orders --------------------------------------------------------------------------------


async def test_an_order_is_looked_up() -> None:
    expected = "Order A-1001: a desk lamp for 49.90 EUR, delivered."
    assert await look_up_order({"order": "A-1001"}) == expected


@pytest.mark.parametrize("number", ["A-9999", "", None, ["A-1001"], "x" * 10_000])
async def test_an_unknown_order_is_an_error(number: object) -> None:
    for action in (look_up_order, refund_order):
        with pytest.raises(ToolError, match="there is no order '") as raised:
            await action({"order": number})
        assert len(str(raised.value)) < 100


async def test_nothing_is_refunded_without_a_person() -> None:
    for number in ORDERS:
        with pytest.raises(ToolError, match=f"nothing was refunded for order {number}"):
            await refund_order({"order": number, "amount": "1.00 EUR", "reason": "broken"})


# --- the table ---------------------------------------------------------------------------------


async def test_the_statistics_are_right() -> None:
    figures = column("ships")
    assert (len(figures), sum(figures)) == (12, 521)
    described = await describe_column({"column": "ships"})
    assert f"mean {statistics.fmean(figures):.2f}" in described
    assert f"stdev {statistics.pstdev(figures):.2f}" in described


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("by", GROUPS)
async def test_groups_add_up_and_the_largest_comes_first(name: str, by: str) -> None:
    groups = grouped(name, by)
    assert sum(map(sum, groups.values())) == sum(column(name))
    told = await compare_groups({"column": name, "by": by})
    best = max(groups, key=lambda group: sum(groups[group]))
    assert told.startswith(f"sum of {name} by {by}: {best} {sum(groups[best])}")


@pytest.mark.parametrize("statistic", STATISTICS)
async def test_every_statistic_can_be_compared(statistic: str) -> None:
    told = await compare_groups({"column": "cargo", "by": "quay", "statistic": statistic})
    assert told.startswith(f"{statistic} of cargo by quay: ")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"column": "__class__", "by": "quay"}, "column must be one of ships, cargo"),
        ({"column": "cargo", "by": "ships"}, "by must be one of month, quay"),
        ({"column": "cargo", "by": "quay", "statistic": "__import__('os')"}, "statistic must be"),
        ({"column": ["cargo"], "by": "quay"}, "column must be one of"),
        ({}, "column must be one of"),
    ],
)
async def test_only_what_the_tables_name_is_computed(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await compare_groups(args)
