"""Run the demo and draw what it prints, as a terminal, into assets/demo.svg.

The picture is of a real run, so a change of what `make demo` prints asks for a new one. It names no
font that would have to be loaded: every line is stretched to its width in columns.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "assets" / "demo.svg"
FIRST, LAST = "== Asking", "== Tasks"

COLUMN, ROW, MARGIN, BAR = 7.8, 19, 22, 34
STYLE = """\
.window { fill: #101c29; stroke: #33506c; }
.bar { fill: #1b3350; }
text { font: 13px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace;
  fill: #d7e2ec; white-space: pre; }
.title, .time { fill: #8ba3ba; }
.heading, .prompt { fill: #f2b14c; }
.agent { fill: #7db8ee; }
.subject { fill: #8fd19e; }
.tool { fill: #c9a6f5; }"""

_MARKS = re.compile(
    r"(?P<heading>^== .*)|(?P<prompt>^\$)|(?P<time>^[\d.]+s )"
    r"|(?P<agent>\b\w+ → \w+|(?<=s )\w+(?= uses ))|(?P<subject>\[[^\]]+\]$)"
    r"|(?P<tool>(?<=uses )\w+|(?<=s )\w+(?= returned))"
)


def printed() -> list[str]:
    """Return the lines of the demo that tell who writes to whom, and the answer."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo.py")],
        stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    first, last = (
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in (FIRST, LAST)
    )
    return ["$ make demo", *"\n".join(lines[first:last]).rstrip().split("\n")]


def picture(lines: list[str]) -> str:
    """Return an SVG of a terminal that shows some lines."""
    width = round(max(map(len, lines)) * COLUMN) + 2 * MARGIN
    height = BAR + len(lines) * ROW + MARGIN
    rows = "\n".join(_row(number, line) for number, line in enumerate(lines) if line)
    dots = "".join(
        f'<circle cx="{MARGIN + 20 * place}" cy="17" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#e5685f", "#f2b14c", "#5fb878"))
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
  aria-label="The output of make demo in a terminal">
<style>
{STYLE}
</style>
<rect class="window" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>
<path class="bar" d="M1 {BAR} V11 a10 10 0 0 1 10 -10 H{width - 11} a10 10 0 0 1 10 10 V{BAR} Z"/>
{dots}
<text class="title" x="{width / 2:.0f}" y="22" text-anchor="middle">MAIL</text>
{rows}
</svg>
"""


def _row(number: int, line: str) -> str:
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    return (
        f'<text x="{MARGIN + indent * COLUMN:.1f}" y="{BAR + (number + 1) * ROW}" '
        f'textLength="{len(text) * COLUMN:.1f}">{"".join(_coloured(text))}</text>'
    )


def _coloured(text: str) -> Iterator[str]:
    end = 0
    for found in _MARKS.finditer(text):
        yield escape(text[end : found.start()])
        yield f'<tspan class="{found.lastgroup}">{escape(found[0])}</tspan>'
        end = found.end()
    yield escape(text[end:])


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE, help="where to write it")
    parser.parse_args().out.write_text(picture(printed()), encoding="utf-8")


if __name__ == "__main__":
    main()
