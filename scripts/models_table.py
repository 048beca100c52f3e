"""Write the table of models into ``docs/models.md``, from the rows that requests are made by.

python scripts/models_table.py           write it
python scripts/models_table.py --check   exit with 1 when the page is not up to date
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

from mail.llm.litellm_model import load_library
from mail.llm.profiles import ROWS, Profile, Row, profile_of

FILE: Final = Path(__file__).resolve().parent.parent / "docs" / "models.md"
BEGIN: Final = "<!-- The table is made by `make models-table`. -->\n"
END: Final = "<!-- End of the table. -->\n"
HEADINGS: Final = (
    "Models",
    "For example",
    "Wire",
    "Forced tools",
    "Thinking",
    "Efforts",
    "Cache marks",
    "`store`",
    "Tested",
    "Source, date",
)
ELSEWHERE: Final = {"OPENAI_BASE_URL": "http://localhost:8000/v1"}
"""What the row of unknown servers is about."""

_WIRES: Final = {
    "completions": "chat",
    "responses": "Responses",
    "anthropic": "message blocks",
}
_FORCED: Final = {
    "ok": "yes",
    "off": "without thinking",
    "one": "by offering only it",
    "auto": "no",
    "unless_thinking": "unless asked to think",
}
_THINKS: Final = {
    "no": "no",
    "asked": "if asked to",
    "default": "unless told not to",
    "always": "always",
}
_BACK: Final = {"always": "; sent back", "thinking": "; sent back while it thinks", "never": ""}


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in ROWS]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> Iterator[str]:
    profile = _profile(row)
    yield row.models
    yield f"`{row.example}`"
    yield _WIRES[profile.wire]
    yield _forced(profile)
    yield _THINKS[profile.thinks] + (_BACK[profile.send_back] if profile.thinks != "no" else "")
    yield _efforts(profile)
    yield "yes" if profile.cache_marks else "no"
    yield "`false`" if profile.store is False or profile.wire == "responses" else "not sent"
    yield row.tested
    yield f"{row.source} ({row.checked})"


def _profile(row: Row) -> Profile:
    around = ELSEWHERE if row.id == "openai-compatible" else {"OPENAI_BASE_URL": ""}
    with mock.patch.dict(os.environ, around):
        return profile_of(load_library(), row.example, "responses")


def _forced(profile: Profile) -> str:
    if not profile.tools:
        return "it cannot call tools"
    able, one = _FORCED[profile.forced_any], _FORCED[profile.forced_named]
    return able if able == one else f"{able}; one tool: {one}"


def _efforts(profile: Profile) -> str:
    if profile.effort_via == "none":
        return "none"
    if profile.effort_via.endswith(("budget", "max_tokens")):
        return "as a budget"
    return ", ".join(profile.efforts) or "any"


def page(text: str) -> str:
    """Return a page with its table made anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{FILE} has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write or check the page."""
    text = FILE.read_text(encoding="utf-8")
    made = page(text)
    if "--check" in arguments:
        if text == made:
            return 0
        print("docs/models.md is not up to date: run 'make models-table'", file=sys.stderr)
        return 1
    FILE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
