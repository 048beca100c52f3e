"""Write the table of models into ``docs/models.md``, from what requests are made by.

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
HEADINGS: Final = ("Row", "Models", "Wire", "Forced tools", "Thinking", "Efforts")
_WORDS: Final = {
    "completions": "chat",
    "responses": "Responses",
    "anthropic": "message blocks",
    "ok": "yes",
    "off": "without thinking",
    "one": "by offering only it",
    "auto": "no",
    "unless_thinking": "unless asked to think",
    "no": "no",
    "asked": "if asked to",
    "default": "unless told not to",
    "always": "always",
}


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    with mock.patch.dict(os.environ, {"OPENAI_BASE_URL": ""}):
        lines += ["| " + " | ".join(_cells(row)) + " |" for row in ROWS]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> Iterator[str]:
    profile = profile_of(load_library(), row.example, "responses")
    yield f"`{row.id}`"
    yield row.models
    yield _WORDS[profile.wire]
    able, one = _WORDS[profile.forced_any], _WORDS[profile.forced_named]
    yield able if able == one else f"{able}; one tool: {one}"
    yield _WORDS[profile.thinks]
    yield _efforts(profile)


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
