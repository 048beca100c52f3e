"""``python -m benchmarks [NAME …]``: run the benchmarks and print their figures.

These are comparisons within one run on one machine: read the ratios, not the absolute times.
``--against SRC`` measures the engine of another version beside ours; SRC is its ``src`` folder.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import crowd, edge, engine, flatness, interrupts, models, throughput

REPORTS: Mapping[str, Callable[[], Awaitable[None]]] = {
    "engine": engine.report,
    "throughput": throughput.report,
    "flatness": flatness.report,
    "interrupts": interrupts.report,
    "models": models.report,
    "edge": edge.report,
    "crowd": crowd.report,
}


async def main(names: list[str], against: Path | None) -> None:
    """Run the named reports, or all of them."""
    reports = {**REPORTS, "engine": partial(engine.report, against)}
    for name in names or reports:
        print(f"--- {name}", flush=True)
        await reports[name]()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks")
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(REPORTS)}; default: all")
    parser.add_argument(
        "--against", type=Path, metavar="SRC", help="the src folder of another version"
    )
    return parser


if __name__ == "__main__":
    parser = _parser()
    arguments = parser.parse_args()
    for unknown in set(arguments.name) - set(REPORTS):
        parser.error(f"unknown benchmark '{unknown}'; expected one of {', '.join(REPORTS)}")
    if arguments.against and not (arguments.against / "mail").is_dir():
        parser.error(f"there is no package 'mail' in {arguments.against}")
    asyncio.run(main(arguments.name, arguments.against))
