"""Words of letters, and the small language of those who look for them; the same in every store.

A letter is kept with one line: the marks of those who may find it, then its words in their order.
An index has the marks and the words, each once, and finds candidates; what asks for a place in the
line (phrases, beginnings of words) is looked up in the lines of the candidates alone. So whatever
others write, a search reads no more of it.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final, Protocol

SEARCHED_CHARACTERS: Final = 65_536
"""The part of a letter's text that is searched, from its beginning."""
MAX_TERMS: Final = 32
"""The most words and phrases of a query; one with more is refused."""
MAX_PARTS: Final = 8
"""The most phrases and beginnings of words among them, which no index has."""
MAX_THREADS: Final = 1000
"""In how many of its threads a mailbox searches at once: those that it has joined last."""
LOOKED_AT: Final = 1000
"""The number of candidates that a search looks at for phrases and the like before it returns."""
LOOKED_BYTES: Final = 4 * 1024 * 1024
"""Their size limit, with `LONGEST_LINE` for the longest."""
LONGEST_LINE: Final = 4 * SEARCHED_CHARACTERS

_LONGEST_WORD: Final = 64
_MARK: Final = "·"
"""Begins the mark of a mailbox or of a thread; no word has it."""

# Scripts without spaces: each sign is a word, so that a text in them is a phrase.
_WORD: Final = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|"
    "[^\\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_SIGNS: Final = "\u3040"
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
# Accents and other signs of no word, but for blocks with symbols written as letters are (``Ⓐ``),
# and two signs of words of which normalising makes accents.
_SYMBOLS: Final = "\u2100-\u2bff\u2e80-\u2fff\u3200-\u33ff\U0001f000-\U0003ffff"
_SIGN: Final = f"(?:[^\\w\\s\x00-\x7f{_SYMBOLS}]|[\uff9e\uff9f])"
_RUN: Final = re.compile(f"({_SIGN}{{8}}){_SIGN}+")
_TERM: Final = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_BEFORE: Final = 60
_SNIPPET: Final = 200
_SHOWN_FROM: Final = 4096
_SHOWN_WORDS: Final = 8
"""The characters of a text, and the words, that are looked at for the place to show."""


class Addressed(Protocol):
    """The parts of a letter, `mail.db.desk.LetterRow`, that are in its line."""

    @property
    def sender(self) -> str: ...
    @property
    def recipients(self) -> tuple[str, ...]: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def body(self) -> str: ...


def words_of(text: str) -> list[str]:
    """Return the words of a text: without case, accents and punctuation, cut to 64 characters."""
    text = text[:SEARCHED_CHARACTERS]
    if text.isascii():
        text = text.lower()
    else:
        # Of accents and the like eight in a row are left: normalising sorts them, in time that
        # grows with the square of their number.
        text = unicodedata.normalize("NFKD", _RUN.sub(r"\1", text))[:LONGEST_LINE]
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", text).casefold())
    return [word[:_LONGEST_WORD] for word in _WORD.findall(text)]


def mailbox_mark(swarm: str, name: str) -> str:
    """Return what stands for a mailbox in the lines of letters that are in no thread."""
    return _mark("mailbox", swarm, name)


def thread_mark(swarm: str, thread_id: str) -> str:
    """Return what stands for a thread in the lines of its letters."""
    return _mark("thread", swarm, thread_id)


@lru_cache(maxsize=4096)
def _mark(*what: str) -> str:
    return _MARK + sha256("\0".join(what).encode("utf-8", "replace")).hexdigest()[:24]


def letter_line(swarm: str, letter: Addressed) -> str:
    """Return the line of a letter: marks and words, with one space between them."""
    if letter.thread_id:
        marks = [thread_mark(swarm, letter.thread_id)]
    else:
        names = dict.fromkeys((letter.sender, *letter.recipients))
        marks = [mailbox_mark(swarm, name) for name in names if name]
    words = " ".join((*words_of(letter.subject), *words_of(letter.body)))[:LONGEST_LINE]
    return " ".join(filter(None, (*marks, words)))


@dataclass(frozen=True, slots=True)
class LetterQuery:
    """A search in the lines of letters.

    Attributes:
        wanted: Words that must be there.
        unwanted: Words that must not.
        present: Parts of the line, which begins and ends with a space for that.
        absent: Parts that it must not have.
    """

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "LetterQuery":
        """Read a query: words, ``"phrases"``, ``-without``, and ``beginnings*``.

        Everything else is text, so there is nothing that could be wrong. What has several words,
        as ``parser.py`` does, is a phrase; what has none says nothing.
        """
        wanted: list[str] = []
        unwanted: list[str] = []
        present: list[str] = []
        absent: list[str] = []
        for minus, phrase, bare in _TERM.findall(text):
            words = words_of(phrase or bare)
            if not words:
                continue
            begins = bare.endswith("*")
            if len(words) == 1 and not begins:
                (unwanted if minus else wanted).extend(words)
                continue
            (absent if minus else present).append(f" {' '.join(words)}{'' if begins else ' '}")
            if not minus:  # the index knows whole words
                wanted += words[: len(words) - begins]
        return cls(*(tuple(dict.fromkeys(each)) for each in (wanted, unwanted, present, absent)))

    @property
    def terms(self) -> int:
        """The number of its terms."""
        return sum(map(len, (self.wanted, self.unwanted, self.present, self.absent)))

    @property
    def parts(self) -> int:
        """The number of its parts that are looked up in the lines themselves."""
        return len(self.present) + len(self.absent)

    def fits(self, line: str) -> bool:
        """Tell whether a line has what is wanted, and nothing that is not."""
        line = f" {line} "
        return (
            all(f" {word} " in line for word in self.wanted)
            and not any(f" {word} " in line for word in self.unwanted)
            and all(part in line for part in self.present)
            and not any(part in line for part in self.absent)
        )


def snippet(query: LetterQuery, text: str) -> str:
    """Return the place of a text where something wanted is, or its beginning, on a line.

    Of long texts and queries the beginnings are looked at: a page has many letters.
    """
    wanted = (*query.wanted, *(part.strip().split()[-1] for part in query.present))
    at = 0
    if words := wanted[:_SHOWN_WORDS]:
        patterns = [re.escape(word) for word in words if word >= _SIGNS]
        if others := "|".join(re.escape(word) for word in words if word < _SIGNS):
            patterns.append(rf"(?<![^\W_])(?:{others})")
        plain = text[:_SHOWN_FROM]
        plain = plain.lower() if plain.isascii() else "".join(map(_plain_character, plain))
        found = re.search("|".join(patterns), plain)
        at = found.start() if found else 0
    text = text[:SEARCHED_CHARACTERS]
    first = max(0, at - _BEFORE)
    if first:
        space = text.find(" ", first, at)
        first = space + 1 if space >= 0 else first
    line = " ".join(text[first : first + _SNIPPET].split())
    before, after = "…" if first else "", "…" if first + _SNIPPET < len(text) else ""
    return f"{before}{line}{after}"


@lru_cache(maxsize=4096)
def _plain_character(character: str) -> str:
    """Return a character without case and accents."""
    return unicodedata.normalize("NFKD", character)[0].casefold()[0]
