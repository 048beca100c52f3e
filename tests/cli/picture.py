"""The picture of the prompt: a conversation in a real terminal, drawn as it looks.

``make pictures`` writes it into `docs/assets`. The server is that of the console's pictures.
"""

import asyncio
import io
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.cli.terminal import terminal
from tests.server.pictures import ASSETS, TOKENS, harbour_served

COLUMNS, ROWS = 84, 60
_FONTS: Final = re.compile(r"@font-face \{\{.*?\}\}\n", re.S)
_NAMES: Final = {"brown": "yellow", "brightbrown": "bright_yellow"}
_EDITED: Final = '{"to": "captain@marigold.example", "text": "Berth 7 on Friday."}'


def drawn(raw: bytes) -> str:
    """Return what a terminal shows of some bytes, from the first prompt on, as an SVG."""
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw)
    lines = [_line(screen.buffer[row]) for row in range(ROWS)]
    while lines and not lines[-1].plain:
        lines.pop()
    while lines and not lines[0].plain.startswith("mail>"):
        lines.pop(0)
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        color_system="truecolor",
        force_terminal=True,
    )
    for line in lines:
        console.print(line)
    # No font is loaded from elsewhere.
    form = _FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "ui-monospace, Menlo, Consolas")
    return console.export_svg(title="mail client", code_format=form, unique_id="prompt")


def _line(cells: Any) -> Text:
    line = Text()
    for column in range(COLUMNS):
        cell = cells[column]
        style = Style(
            color=_colour(cell.fg), bold=cell.bold, italic=cell.italics, underline=cell.underscore
        )
        line.append(cell.data or " ", style)
    line.rstrip()
    return line


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return _NAMES.get(name, name.replace("bright", "bright_"))


async def converse(url: str, home: Path) -> bytes:
    """Ask a question, and decide about a call; return all that the terminal was sent."""
    arguments = ["client", url, "--api-key", TOKENS["tomas"]]
    size = (COLUMNS, ROWS)
    async with terminal(home, arguments, size=size, TERM="xterm-256color") as person:
        await person.see("mail>")
        await person.ask("When's high water on Friday?", "completed")
        person.type("Tell the captain about the berth of the Marigold")
        held = (await person.see(r"/approve \S+")).split()[1]
        await person.see("mail>")
        await person.ask(f"/edit {held} {_EDITED}", "completed")
        return person.raw


async def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as home:
        async with harbour_served() as harbour:
            raw = await converse(harbour.url, Path(home))
    (ASSETS / "prompt.svg").write_text(drawn(raw), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
