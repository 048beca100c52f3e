"""The specification taken apart: its chapters, rules, tables and samples."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

SPEC = Path(__file__).parents[2] / "spec"
TABLE = "Rules and tests"
WORDS = "Words"

_KEYWORD = re.compile(r"\b(?:MUST|SHOULD)(?: NOT)?\b")
_RULE_ID = re.compile(r"MAIL-[A-Z]+-\d+")
_RULE = re.compile(r"- \*\*(MAIL-([A-Z]+)-(\d+))\*\* (\*\(extension\)\* )?(.*)", re.DOTALL)


class Rule(NamedTuple):
    """One rule of the text."""

    id: str
    code: str
    number: int
    extension: bool
    level: str
    chapter: str


class Row(NamedTuple):
    """One row of the table of rules."""

    id: str
    level: str
    tests: list[str]
    not_built: str


def text() -> str:
    """Return the page."""
    return (SPEC / "SPEC.md").read_text("utf-8")


@cache
def chapters() -> dict[str, str]:
    """Return the chapters by their titles, without numbers."""
    parts = re.split(r"^## ", text(), flags=re.M)[1:]
    return {part.splitlines()[0].lstrip("0123456789. "): part for part in parts}


def blocks(chapter: str) -> list[str]:
    """Return a chapter's paragraphs and list items as one line each, without code and tables."""
    plain = re.sub(r"^```.*?^```$", "\n", chapters()[chapter], flags=re.M | re.S)
    found: list[list[str]] = [[]]
    for line in plain.splitlines():
        if not line.strip() or line.startswith(("- ", "|", "#")):
            found.append([])
        if line.strip() and not line.startswith(("|", "#")):
            found[-1].append(line.strip())
    return [" ".join(lines) for lines in found if lines]


def keywords(block: str) -> list[str]:
    """Return the words of RFC 2119 in a block that make it a rule."""
    return _KEYWORD.findall(block)


def ids(block: str) -> list[str]:
    """Return the ids of rules in a block."""
    return _RULE_ID.findall(block)


def rules() -> list[Rule]:
    """Return the rules of the text in order."""
    found = []
    for chapter in chapters():
        for block in blocks(chapter):
            match = _RULE.match(block)
            if match:
                rule_id, code, number, extension, rest = match.groups()
                [level] = keywords(rest)
                found.append(Rule(rule_id, code, int(number), bool(extension), level, chapter))
    return found


def rows() -> list[Row]:
    """Return the rows of the table of rules in order."""
    found = []
    for line in chapters()[TABLE].splitlines():
        if line.startswith("| MAIL-"):
            rule_id, level, cell = (part.strip() for part in line.strip("|").split("|"))
            quoted = re.findall(r"`([^`]+)`", cell)
            built = not cell.startswith("not built yet")
            found.append(Row(rule_id, level, quoted if built else [], "" if built else quoted[0]))
    return found


def samples(language: str) -> list[tuple[str, str]]:
    """Return the code blocks of one language, each with its chapter."""
    found = []
    for chapter, part in chapters().items():
        fenced = part.splitlines()
        while any(line.startswith("```") for line in fenced):
            start = next(i for i, line in enumerate(fenced) if line.startswith("```"))
            end = fenced.index("```", start + 1)
            if fenced[start] == f"```{language}":
                found.append((chapter, "\n".join([*fenced[start + 1 : end], ""])))
            fenced = fenced[end + 1 :]
    return found


def tables(chapter: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return a chapter's tables: the head and the rows of each, as cells."""
    found: list[list[list[str]]] = [[]]
    for line in chapters()[chapter].splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            found[-1].append([cell.strip() for cell in cells])
        elif found[-1]:
            found.append([])
    return [(table[0], table[2:]) for table in found if table]


def fields_of(name: str) -> dict[str, bool]:
    """Return the fields of a shape and whether they are required, as the field tables say."""
    for chapter in chapters():
        for head, body in tables(chapter):
            if head[0].startswith("Field of") and f"`{name}`" in head[0]:
                return {row[0].strip("`"): row[2] == "yes" for row in body}
    raise LookupError(name)
