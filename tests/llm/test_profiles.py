"""The table of models: what its rows say, and what comes before and after them."""

import dataclasses
import re
from datetime import date

import pytest

from mail.llm.profiles import ROWS, Profile, Row, profile_of, row_of
from tests.llm.streams import library

FIELDS = {one.name for one in dataclasses.fields(Profile)} - {"row", "source", "checked"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_row_sets_known_fields_and_tells_its_source(row: Row) -> None:
    assert set(row.fields) <= FIELDS
    assert row.source.strip()
    assert date.fromisoformat(row.checked) <= date(2026, 12, 31)
    assert re.compile(row.provider) and re.compile(row.model)
    Profile(**row.fields)


def test_rows_have_names_of_their_own_and_the_last_fits_every_model() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert row_of("", "").id == ROWS[-1].id == "default"


def test_what_is_set_comes_before_row_and_tables() -> None:
    set_fields = {"wire": "completions", "forced_any": "auto", "silence": 5.0}
    found = profile_of(library(), "openai/gpt-5-mini", "responses", set_fields)
    assert (found.wire, found.forced_any, found.silence) == ("completions", "auto", 5.0)


def test_an_alias_can_be_like_another_model() -> None:
    claude = "anthropic/claude-sonnet-4-5"
    alias = profile_of(library(), "litellm_proxy/ours", "responses", {"like": claude})
    assert alias == profile_of(library(), f"litellm_proxy/{claude}", "responses")
    assert alias.wire == "anthropic"
