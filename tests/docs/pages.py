"""What is on the pages: code blocks, headings and links of README.md and of everything in docs/."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SHELL = ("bash", "sh")
OUTPUT = ("text", "json")

_FENCE = re.compile(
    r"^(?P<ticks>```+)(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=ticks)\s*$", re.M | re.S
)
_NOT_RUN = re.compile(r"<!-- not run: .+? -->\s*\Z", re.S)
_SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`[^\n]*\n+\Z")
_SET = re.compile(r"[Ii]n `([\w.]+)`, set:\n+\Z")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.M)
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``skipped`` when an HTML comment before it says why it is not run.

    ``follows`` is true when nothing stands between this block and the one before it, ``saved_as``
    the name of the file that the line before tells the reader to save it as, and ``set_in`` that
    of the TOML file in which to change the values that are in the block.
    """

    page: str
    line: int
    language: str
    code: str
    skipped: bool
    follows: bool
    saved_as: str | None
    set_in: str | None

    @property
    def place(self) -> str:
        """Where the block begins."""
        return f"{self.page}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks on a page: those of the given languages, or all."""
    text = page.read_text(encoding="utf-8")
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        saved, changed = _SAVED.search(before), _SET.search(before)
        found.append(
            Block(
                page=name_of(page),
                line=before.count("\n") + 1,
                language=match["language"],
                code=match["code"],
                skipped=bool(_NOT_RUN.search(before)),
                follows=bool(end) and not text[end : match.start()].strip(),
                saved_as=saved[1] if saved else None,
                set_in=changed[1] if changed else None,
            )
        )
        end = match.end()
    return [block for block in found if not languages or block.language in languages]


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def headings(page: Path) -> list[str]:
    """Return the headings of a page as they are written."""
    return _HEADING.findall(_prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get on the usual hosts."""
    found: dict[str, int] = {}
    names = set()
    for heading in headings(page):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return names


def internal_links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links within the repository."""
    for target in _LINK.findall(_prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def pictures(page: Path) -> list[str]:
    """Return the targets of a page's pictures."""
    return _PICTURE.findall(_prose(page))


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
