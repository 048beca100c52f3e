"""A task as a person sees it: its events as they happen, a status line, and the answer.

All text is from models, tools and other callers, and none of it is obeyed: characters that cannot
be seen are shown as ``\\uXXXX``, and links are plain text.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import cleaned, one_line
from mail.cli.repl.screen import AT_LIMIT, decoded, how_to_answer, mapping, outcome, text_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from mail.net.types import Approval

_MOST_OF_A_TEXT: Final = 600
_MOST_LINES: Final = 6
_MOST_MARKDOWN: Final = 32_768
"""Characters; a longer answer is shown as it is."""

_DEEPEST: Final = 16
_DEEPEST_INDENT: Final = 3
_NARROW: Final = 60
CALL_ID: Final = 10
_LONGEST_ID: Final = 40
_MADE_UP: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(call|toolu|fc)[_-][\w-]{12,}")
"""Ids that people do not know by heart."""

_TICK: Final = 0.125
_FRAMES: Final = ("⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏")
_PLAIN_FRAMES: Final = ("-", "\\", "|", "/")
_SPOKEN: Final = frozenset(
    {
        *("send_request", "send_response", "send_broadcast", "send_interrupt"),
        *("send_interswarm_broadcast", "acknowledge_broadcast", "await_message", "task_complete"),
    }
)
"""Tools whose effect is an event of its own."""

_SILENT: Final = frozenset(
    {
        *("action_call", "model_usage", "ping", "server_drain", "model_delta"),
        *("task_complete_call", "task_complete_call_duplicate"),
    }
)
_DECIDED: Final[Mapping[object, str]] = {
    "accept": "accepted",
    "edit": "edited",
    "ignore": "ignored",
    "response": "answered",
}
_TROUBLE: Final = frozenset(
    {"action_error", "agent_error", "interswarm_message_error", "run_loop_error", "task_error"}
)


def how_long(seconds: float) -> str:
    """Return a duration or an age in one unit or two: ``0.4 s``, ``12 s``, ``3 min``, ``5 d``."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    for most, unit, name in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def spent(tokens: int, cost: float | None) -> list[str]:
    """Return what was used, as far as it is known: ``1,234 tokens``, ``$0.0021``."""
    told = [f"{tokens:,} tokens"] if tokens else []
    if cost is not None:
        told.append(f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}")
    return told


@dataclass
class Progress:
    """The agents at work in a task and its usage, by its events so far."""

    busy: dict[str, str] = field(default_factory=dict)
    """Agents that work, each with its tool, or an empty text."""

    depth: dict[str, int] = field(default_factory=dict)
    """The distance of an agent from the user, in requests."""

    tokens: int = 0
    cost: float | None = None
    began: str = ""
    ended: str = ""

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event into account."""
        now, extra = str(data.get("timestamp") or ""), mapping(data.get("extra_data"))
        if self.ended or not self.began:
            self.began, self.ended = now, ""
        if kind in ("task_complete", "task_error"):
            self.ended = now
            self.busy.clear()
        elif kind == "new_message":
            self._message(mapping(extra.get("full_message")))
        elif kind == "model_usage":
            total = mapping(extra.get("task_usage"))
            tokens, cost = total.get("total_tokens"), total.get("cost")
            self.tokens = tokens if isinstance(tokens, int) else self.tokens
            self.cost = float(cost) if isinstance(cost, int | float) else self.cost
        elif caller := str(extra.get("caller") or ""):
            waits = str(data.get("description")).partition(": ")[2] if kind == "model_retry" else ""
            self._work(kind, caller, waits or str(extra.get("tool_name") or ""))

    @property
    def seconds(self) -> float | None:
        """The duration of the last run, if both ends are known."""
        try:
            between = datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.began)
        except (TypeError, ValueError):
            return None
        return between.total_seconds()

    def _message(self, message: Mapping[str, Any]) -> None:
        content = mapping(message.get("message"))
        sender = mapping(content.get("sender"))
        source = str(sender.get("address")) if sender.get("address_type") == "agent" else ""
        self.busy.pop(source, None)
        for name in _recipients(content, kind="agent"):
            if name != "all":
                self.busy.setdefault(name, "")
                self.depth.setdefault(name, self.depth[source] + 1 if source in self.depth else 0)

    def _work(self, kind: str, caller: str, tool: str) -> None:
        if kind in ("action_call", "builtin_tool_call", "model_retry"):
            self.busy[caller] = tool
        elif kind in ("action_complete", "action_error"):
            self.busy[caller] = ""
        elif kind in ("await_message", "breakpoint_tool_call", "task_complete_call"):
            self.busy.pop(caller, None)
        elif kind == "tool_call":
            self.busy[caller] = "" if tool in _SPOKEN else tool


class View:
    """Shows a task on a console: a terminal, or a file that gets plain text without wrapping.

    Args:
        progress: The state of the task by the events that were shown before.
        console: Where; by default standard output.
    """

    def __init__(self, progress: Progress | None = None, console: "Console | None" = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self.progress = progress or Progress()
        self.state = ""  # of the connection, when there is something to say
        self._called: set[str] = set()
        self.asked: Mapping[str, Approval] = {}  # approvals by the ids of their calls
        self.before = "/"  # what stands before a command
        self._since = time.monotonic()

    @property
    def is_live(self) -> bool:
        """Whether the console can redraw a line."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def take(self, kind: str | None, data: object, *, mine: bool = False) -> bool:
        """Show an event; return whether it ends a run, whose answer is shown then.

        Args:
            kind: The kind of event.
            data: Its data, or that as JSON text.
            mine: Leave out messages of the user, who has just typed them.
        """
        name, found = str(kind or "message"), decoded(data)
        values = mapping(found)
        self.progress.take(name, values)
        if name == "task_complete":
            self.answer(values)
        elif name == "new_message":
            self._message(mapping(mapping(values.get("extra_data")).get("full_message")), mine)
        elif name.startswith("approval_"):
            self._approval(name, mapping(values.get("extra_data")))
        elif name not in _SILENT:
            self._event(name, values)
        return name in ("task_complete", "task_error")

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Show the end of a run: the answer or the open calls, and what the run has used."""
        calls = answer.get("breakpoints") or ()
        if not calls and self.console.is_terminal:
            self.text(answer.get("response"))
        elif not calls:  # what begins at the edge is not the answer's: it could tell of other tasks
            self.line(text_of(answer.get("response")), indent=1)
        short = short_ids((str(mapping(call).get("call_id")) for call in calls), CALL_ID)
        for call in calls:
            self._call(mapping(call), short)
        told = [f"task {short_id(answer.get('task_id'))} {answer.get('status') or 'ended'}"]
        told += [how_long(s)] if (s := self.progress.seconds) is not None else []
        self.line((" · ".join([*told, *spent(self.progress.tokens, self.progress.cost)]), "dim"))
        if answer.get("ended_by"):
            self.line((AT_LIMIT, "yellow"))

    def text(self, value: object) -> None:
        """Show a text: JSON with colours, Markdown with its layout; a long one as it is."""
        from rich.json import JSON
        from rich.text import Text

        text = cleaned(text_of(value))
        if len(text) > _MOST_MARKDOWN:  # the terminal wraps it: rich takes seconds for that
            self.console.print(_Harmless(Text(text)), soft_wrap=True)
            return
        shown = None
        if text.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                shown = JSON(text)
        self.show(shown or self._as_markdown(text) or Text(text))

    def line(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """Show a line; a part is a text or a pair of text and style."""
        from rich.text import Text

        line, left = Text(), self._left(indent)
        if not self.console.is_terminal:  # in a terminal `show` indents
            line.append(left)
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            text = cleaned(text)
            line.append(
                text if self.console.is_terminal else text.replace("\n", f"\n{left}"), style
            )
        self.show(line, indent=indent)

    def whole(self, text: str, *, indent: int) -> None:
        """Show all of a text with all its blanks, each line of it indented."""
        from rich.cells import chop_cells
        from rich.text import Text

        left, lines = self._left(indent), cleaned(text).split("\n")
        if self.console.is_terminal:
            width = max(self.console.width - len(left), 2)
            lines = [piece for line in lines for piece in chop_cells(line, width) or [""]]
        shown = Text("\n".join(f"{left}{line}" for line in lines))
        self.console.print(_Harmless(shown), soft_wrap=True)

    def _left(self, indent: int) -> str:
        """Return what indents a line."""
        narrow = self.console.is_terminal and self.console.width < _NARROW
        return "  " * min(indent, 1 if narrow else _DEEPEST_INDENT)

    def show(self, shown: "RenderableType", *, indent: int = 0) -> None:
        """Show what rich can render."""
        from rich.padding import Padding

        if not self.console.is_terminal:
            self.console.print(_Harmless(shown), soft_wrap=True)
            return
        left = len(self._left(indent))
        self.console.print(_Harmless(Padding.indent(shown, left) if left else shown))

    @asynccontextmanager
    async def status(self, *, quiet: bool = False) -> AsyncIterator[None]:
        """Show a line that tells who works, with which tool, for how long and at what cost."""
        self._since = time.monotonic()
        if quiet or not self.is_live:
            yield
            return
        from rich.live import Live

        with Live(
            get_renderable=self._status,
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:

            async def tick() -> None:
                while True:
                    live.refresh()
                    await asyncio.sleep(_TICK)

            ticking = asyncio.create_task(tick())
            try:
                yield
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    def _status(self) -> "RenderableType":
        from rich.text import Text

        elapsed = time.monotonic() - self._since
        frames = _FRAMES if self.console.encoding.startswith("utf") else _PLAIN_FRAMES
        frame = frames[int(elapsed / _TICK) % len(frames)]
        who = [f"{name}: {tool}" if tool else name for name, tool in self.progress.busy.items()]
        told = [self.state or ", ".join(who) or "waiting", how_long(elapsed)]
        told += spent(self.progress.tokens, self.progress.cost)
        line = f"{frame} {' · '.join(one_line(part) for part in told)}"
        return _Harmless(Text(line, "dim", no_wrap=True, overflow="ellipsis", end=""))

    def _message(self, message: Mapping[str, Any], mine: bool) -> None:
        content = mapping(message.get("message"))
        sender = mapping(content.get("sender"))
        source, kind = str(sender.get("address")), sender.get("address_type")
        subject = str(content.get("subject") or "")
        ends = message.get("msg_type") == "broadcast_complete"
        if kind == "system" or ends or (mine and kind in ("user", "admin")):
            return
        names = _recipients(content)
        known = [self.progress.depth[n] for n in (source, *names) if n in self.progress.depth]
        about = "" if subject in ("", "New Message") else f"  {one_line(subject)}"
        interrupts = message.get("msg_type") == "interrupt"
        self.line(
            (one_line(source), "bold cyan"),
            (" ⇒ " if interrupts else " → ", "bold red" if interrupts else "dim"),
            (one_line(", ".join(names)), "cyan"),
            (about, "bold"),
            indent=max(known, default=0),
        )
        self._part(str(content.get("body") or ""), max(known, default=0) + 1)

    def _event(self, name: str, data: Mapping[str, Any]) -> None:
        extra = mapping(data.get("extra_data"))
        caller, tool = one_line(str(extra.get("caller") or "")), str(extra.get("tool_name") or "")
        depth = self.progress.depth.get(caller, 0) + 1
        if name == "tool_call":
            self._tool_call(caller, tool, extra, depth)
        elif name == "action_complete":
            self._part(extra.get("result"), depth + 1, "green")
        elif name == "breakpoint_action_complete":
            self._part(str(data.get("description") or "").partition("): ")[2], depth + 1, "dim")
        elif name in _TROUBLE:
            text = data.get("response") or data.get("description") or name
            self.line((f"{name}: {_cut(str(text))}", "red"), indent=0 if name[0] == "t" else depth)
        elif name == "await_message":
            self.line((f"{caller} waits: {one_line(str(extra.get('reason') or ''))}", "dim"))
        elif name != "breakpoint_tool_call":  # the answer lists the calls
            about = one_line(str(data.get("description") or ""))
            self.line((f"{one_line(name)}  {about}".rstrip(), "dim"), indent=depth)

    def _tool_call(self, caller: str, tool: str, extra: Mapping[str, Any], depth: int) -> None:
        if extra.get("reasoning"):
            self._part(str(extra["reasoning"]), depth, "dim italic")
        if tool in _SPOKEN:
            return
        self._called.add(tool)
        arguments = mapping(extra.get("tool_args"))
        self.line(
            (f"{caller} ", "cyan"),
            (one_line(tool), "yellow"),
            (arguments_line(arguments)),
            indent=depth,
        )

    def _part(self, value: object, depth: int, style: str = "") -> None:
        """Show the beginning of a text."""
        if text := _cut(text_of(value)):
            self.line((text, style), indent=depth)

    def _call(self, call: Mapping[str, Any], short: Mapping[str, str]) -> None:
        """Show a call that waits for its result, with its arguments if they were not shown yet."""
        name, call_id = str(call.get("name")), str(call.get("call_id"))
        shown = arguments_line(mapping(decoded(call.get("arguments"))))
        record = self.asked.get(call_id)
        told = outcome(record) if record is not None else ""
        self.line(
            (one_line(name), "bold yellow"),
            "" if name in self._called else shown,
            (f" {told}" if told else " waits for you", "dim" if told else "yellow"),
        )
        if told:
            return
        if record is None or record["kind"] != "approval":
            self.line(f"{self.before}answer {one_line(short[call_id], _LONGEST_ID)} TEXT", indent=1)
            return
        held = short_id(record["approval_id"])
        self.line(how_to_answer(record["config"], held, self.before), indent=1)
        left = left_out(mapping(decoded(call.get("arguments"))))
        about = f", {left:,} more characters of its arguments too" if left else ""
        self.line((f"{self.before}approvals {held} shows all about it{about}", "dim"), indent=1)

    def _approval(self, name: str, extra: Mapping[str, Any]) -> None:
        """Show how a call that was held was decided."""
        if name == "approval_requested":  # the end of the run lists the calls
            return
        tool, by = one_line(str(extra.get("tool_name"))), extra.get("answered_by")
        if by:
            kind = _DECIDED.get(extra.get("type")) or one_line(str(extra.get("type")))
            told = (f" by {one_line(str(by))}", "dim")
            self.line((tool, "yellow"), (f" {kind}", "bold yellow"), told, indent=1)
        else:
            self.line(("nobody answered ", "dim"), (tool, "yellow"), (" in time", "dim"), indent=1)
        for field_name, change in mapping(extra.get("changed")).items():
            before, after = (
                _beginning(json.dumps(mapping(change).get(end), ensure_ascii=False))
                for end in ("from", "to")
            )
            self.line(
                f"{one_line(field_name)}: ", (before, "red"), " → ", (after, "green"), indent=2
            )

    def _as_markdown(self, text: str) -> "RenderableType | None":
        """Return Markdown without HTML, whose line ends stay; None if its layout has no room."""
        from markdown_it import MarkdownIt
        from rich.markdown import Markdown

        if not self.console.is_terminal:
            return None
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        parsed = parser.disable(["entity"]).parse(text.strip("\n"))
        if any(token.level > _DEEPEST for token in parsed):
            return None
        for child in (child for token in parsed for child in token.children or ()):
            if child.type == "softbreak":
                child.type = "hardbreak"
        shown = Markdown("", hyperlinks=False, code_theme="ansi_dark")
        shown.parsed = parsed
        return shown


class _Harmless:
    """Renders something, without characters or styles that do more than show text."""

    def __init__(self, shown: "RenderableType") -> None:
        self._shown = shown

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for segment in console.render(self._shown, options):
            if segment.control is None:
                style = segment.style
                plain = style.update_link(None) if style is not None and style.link else style
                yield Segment(cleaned(segment.text), plain)


def _recipients(content: Mapping[str, Any], kind: str | None = None) -> list[str]:
    listed = content.get("recipients")
    found = listed if isinstance(listed, list) else [content.get("recipient")]
    to = [mapping(address) for address in found]
    return [str(a.get("address")) for a in to if kind in (None, a.get("address_type"))]


def arguments_line(arguments: Mapping[str, Any]) -> str:
    """Return arguments as a call shows them, on one line, with all their blanks."""
    return _beginning(_call_text(arguments), _MOST_OF_A_TEXT)


def left_out(arguments: Mapping[str, Any]) -> int:
    """Return how many characters `arguments_line` leaves out."""
    return max(len(_call_text(arguments)) - _MOST_OF_A_TEXT + 1, 0) if arguments else 0


def _call_text(arguments: Mapping[str, Any]) -> str:
    def shown(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    return "({})".format(
        ", ".join(
            f"{name if name.isidentifier() else shown(name)}={shown(value)}"
            for name, value in arguments.items()
        )
    )


def _beginning(text: str, most: int = 200) -> str:
    """Return the beginning of JSON text; its line ends and tabs are escapes already."""
    return cleaned(text if len(text) <= most else f"{text[: most - 1]}…")


def _cut(text: str) -> str:
    """Return the beginning of a text, and how much is left out."""
    text = cleaned(text).strip()
    lines = text[: _MOST_OF_A_TEXT + 1].split("\n")[:_MOST_LINES]
    kept = "\n".join(lines)[:_MOST_OF_A_TEXT]
    left = len(text) - len(kept)
    return f"{kept}\n… {left:,} more characters" if left > 1 else kept


def short_ids(ids: Iterable[str], usual: int = 8) -> dict[str, str]:
    """Return what to show of each id: the first characters, more if it takes them to be unique.

    Names that somebody has given, which are no UUIDs or ids of calls, stay whole.
    """
    known, short = sorted(set(ids)), {}
    for at, name in enumerate(known):
        near = [*known[max(at - 1, 0) : at], *known[at + 1 : at + 2]]
        length = usual
        while any(other.startswith(name[:length]) for other in near) and length < len(name):
            length += 1
        short[name] = name[:length] if _MADE_UP.fullmatch(name) else name
    return short


def short_id(name: object) -> str:
    """Return what to show of an id where there is nothing to compare it with."""
    return one_line(short_ids([str(name)])[str(name)], _LONGEST_ID)
