"""Command input: typed at a terminal, with editing, completion and history, or piped in."""

import asyncio
import io
import re
import sys
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from mail.cli.common import cleaned, one_line
from mail.cli.repl.commands import COMMANDS
from mail.cli.repl.loop import LineCleared, may_be_key
from mail.cli.repl.parsing import (
    HELP,
    LEAVE,
    CommandParser,
    build_parser,
    command_names,
    meaning,
    split,
)
from mail.cli.repl.session import Session
from mail.cli.repl.talk import learn, section
from mail.cli.repl.view import short_id
from mail.cli.table import Command
from mail.core.suggest import did_you_mean
from mail.logs.setup import redact

PROMPT: Final = "mail> "
_MORE: Final = "... "
_KNOWN: Final = frozenset({*command_names(), *LEAVE, *HELP})
_QUOTING: Final = re.compile(r"[\s'\"\\]+")
_PLAIN: Final = re.compile(r"[\w.:@+-]{1,100}")
_AGENT_FLAGS: Final = ("-e", "--entrypoint")
_TASK_FLAGS: Final = ("-tid", "--task-id")
_IDS: Final = ("task_id", "approval_id")
_TOKENS: Final = frozenset({"api_key", "user_token", "auth_token"})
_WITH_SECRETS: Final = [
    name
    for command in COMMANDS
    if any(param.name in _TOKENS for param in command.params)
    for name in command.names
]


class TypedLines:
    """Lines typed at a terminal. A backslash at the end of a line continues it.

    Args:
        runner: The event loop runner for the prompt.
        history: The history file; created if it does not exist.
        session: The session of the conversation.
    """

    interactive = True

    def __init__(self, runner: asyncio.Runner, history: Path, session: Session) -> None:
        self._runner = runner
        self._history = CommandHistory(history)
        self._talk = session.talk
        self._parser = build_parser("", typed=True, more=(section,))
        self._prompt: PromptSession[str] = PromptSession(
            history=self._history,
            completer=CommandCompleter(self._parser, session),
            complete_while_typing=False,
            key_bindings=_keys(),
        )

    def read(self) -> str:
        """Return the next command; see `mail.cli.repl.loop.Lines`."""
        begun, self._talk.next_line = self._talk.next_line, ""
        line = self._ask(PROMPT, begun)
        between = "" if meaning(line, self._parser).text is None else "\n"
        while _goes_on(line):
            line = line[:-1] + between + self._ask(_MORE)
        self._history.remember(line)
        return line

    def _ask(self, prompt: str, begun: str = "") -> str:
        line = self._runner.run(self._typed(prompt, begun))
        if line is None:
            some = self._prompt.default_buffer.text or prompt != PROMPT
            raise LineCleared if some else KeyboardInterrupt
        return line

    async def _typed(self, prompt: str, begun: str) -> str | None:
        # A KeyboardInterrupt raised out of a coroutine would stop its event loop.
        try:
            return await self._prompt.prompt_async(
                prompt, default=begun, bottom_toolbar=self._toolbar
            )
        except KeyboardInterrupt:
            return None

    def _toolbar(self) -> str:
        """Return the line below the prompt: where what is said will go."""
        task = self._talk.task_id
        where = f"continues task {short_id(task)}; /new begins another" if task else "a new task"
        return cleaned(f"{where} · /help · Alt-Enter: new line")


def _keys() -> KeyBindings:
    """Let Alt-Enter begin a new line of the same text, and ignore what looks like a mouse."""
    keys = KeyBindings()

    @keys.add(
        Keys.Vt100MouseEvent
    )  # so does a colour that was typed, which prompt_toolkit trips on
    def _(event: KeyPressEvent) -> None:
        pass

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class PipedLines:
    """Lines from a file or a pipe."""

    interactive = False

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source or sys.stdin
        if isinstance(self._source, io.TextIOWrapper):
            self._source.reconfigure(errors="surrogateescape")  # `split` refuses such a line

    def read(self) -> str:
        """Return the next command; see `mail.cli.repl.loop.Lines`."""
        lines = [self._next()]
        while _goes_on(lines[-1]):
            lines[-1] = lines[-1][:-1]
            lines.append(self._next())
        return "".join(lines)

    def _next(self) -> str:
        line = self._source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


class CommandHistory(FileHistory):
    """A history file that only its owner can read, without lines that contain keys.

    If the file cannot be read or written, there is no history, and no error.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Return the earlier lines, newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def append_string(self, string: str) -> None:
        """Ignore a line of the prompt: it may be incomplete; `remember` gets the whole command."""

    def remember(self, line: str) -> None:
        """Add a complete command to the history, and to the file unless it may contain a key."""
        if line.strip() and line not in self.get_strings()[-1:]:
            super().append_string(line)

    def store_string(self, string: str) -> None:
        """Write a line to the file, unless it may contain a key."""
        if _may_hold_key(string):
            return
        try:
            self._file.touch(mode=0o600, exist_ok=True)
            self._file.chmod(0o600)
            super().store_string(string)
        except OSError:
            return


def _may_hold_key(line: str) -> bool:
    """Tell whether a line may contain a key, or is one."""
    try:
        words = split(line)
    except ValueError:
        words = _QUOTING.sub(" ", line).split()
    if words and words[0] == line.split(None, 1)[0] and words[0][:1] == "/":
        words = [words[0][1:], *words[1:]]
    if not words or redact(line) != line or may_be_key(line):
        return True
    if words[0] not in _KNOWN and (len(words) == 1 or did_you_mean(words[0], _WITH_SECRETS)):
        return True
    return any(word in _WITH_SECRETS for word in (words[1:] if words[0] in HELP else words[:1]))


class CommandCompleter(Completer):
    """Completes commands, their flags and fixed values, and the ids of tasks and agents.

    Args:
        parser: The commands.
        session: The session whose tasks and agents to complete, if any.
    """

    def __init__(self, parser: CommandParser, session: Session | None = None) -> None:
        self._parser = parser
        self._session = session

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions of the word before the cursor, of what is known already."""
        words, word = _before(document)
        for candidate, about in self._candidates(words, word, slash=document.text[:1] == "/"):
            if candidate.startswith(word):
                yield Completion(candidate, -len(word), display_meta=about)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        """Yield completions; ask the server where tasks, calls or agents are expected."""
        kind = self._wanted(_before(document)[0])
        if self._session is not None and kind:
            await learn(self._session, kind)
        for completion in self.get_completions(document, complete_event):
            yield completion

    def _candidates(self, words: list[str], word: str, *, slash: bool) -> Iterable[tuple[str, str]]:
        known = self._parser.subcommands
        if words and words[0] not in HELP:
            command = known.get(words[0])
            return () if command is None else self._arguments(command, words, word)
        names = {name for name, each in known.items() if words or slash or not each.slash}
        names |= set() if words else {"help", *LEAVE}
        return [(name, "") for name in sorted(names if len(words) < 2 else ())]

    def _arguments(
        self, command: Command, words: list[str], word: str
    ) -> Iterable[tuple[str, str]]:
        if values := command.flags.get(words[-1]):
            return [(value, "") for value in values]
        if word[:1] == "-":
            return [(flag, "") for flag in sorted(command.flags) if flag.startswith("--")]
        if self._session is None:
            return ()
        talk = self._session.talk
        agents = dict.fromkeys(sorted(talk.agents), "")
        known = {"task_id": talk.tasks, "approval_id": talk.calls, "agent": agents}
        found = known.get(self._wanted(words), {})
        # Names come from outside: those that can be typed, and show nothing but themselves.
        return [(n, one_line(about, 50)) for n, about in found.items() if _PLAIN.fullmatch(n)]

    def _wanted(self, words: list[str]) -> str:
        """Return what the word after these is the id of: see `learn`."""
        command = self._parser.subcommands.get(words[0]) if words else None
        if command is None:
            return ""
        if words[-1] in _AGENT_FLAGS:
            return "agent"
        if words[-1] in _TASK_FLAGS:
            return "task_id"
        return command.first or "" if len(words) == 1 and command.first in _IDS else ""


def _before(document: Document) -> tuple[list[str], str]:
    """Return the words before the cursor, and what there is of the one at the cursor."""
    before = document.text_before_cursor.removeprefix("/")
    words = before.split()
    return words, "" if not words or before.endswith(" ") else words.pop()
