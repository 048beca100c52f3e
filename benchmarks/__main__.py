"""``python -m benchmarks [NAME …]``: run the benchmarks and print their figures.

These are comparisons within one run on one machine: read the ratios, not the absolute times.
``--against SRC`` measures another version beside ours, where a benchmark can (the engine, abuse);
SRC is its ``src`` folder. ``abuse`` takes minutes and is run only when it is named; ``--only``
names some of its scenarios.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import (
    abuse,
    crowd,
    desk,
    edge,
    engine,
    federation,
    flatness,
    interrupts,
    models,
    nodes,
    throughput,
)
from tests.support.proxies import NAMES as PROXIES

REPORTS: Mapping[str, Callable[[], Awaitable[None]]] = {
    "engine": engine.report,
    "throughput": throughput.report,
    "flatness": flatness.report,
    "interrupts": interrupts.report,
    "models": models.report,
    "edge": edge.report,
    "crowd": crowd.report,
    "federation": federation.report,
    "desk": desk.report,
    "nodes": nodes.report,
}

NAMES = (*REPORTS, "abuse")


async def main(names: list[str], against: Path | None, only: list[str], proxies: list[str]) -> None:
    """Run the named reports, or all of them."""
    reports = {
        **REPORTS,
        "engine": partial(engine.report, against),
        "abuse": partial(abuse.report, against, only, proxies),
    }
    for name in names or REPORTS:
        print(f"--- {name}", flush=True)
        await reports[name]()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks")
    parser.add_argument(
        "name", nargs="*", help=f"one of {', '.join(NAMES)}; default: all but abuse"
    )
    parser.add_argument(
        "--against", type=Path, metavar="SRC", help="the src folder of another version"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="SCENARIO", help="one scenario of abuse"
    )
    parser.add_argument(
        "--proxy", action="append", default=[], choices=PROXIES, help="attack ours behind it, too"
    )
    return parser


if __name__ == "__main__":
    parser = _parser()
    arguments = parser.parse_args()
    for unknown in set(arguments.name) - set(NAMES):
        parser.error(f"unknown benchmark '{unknown}'; expected one of {', '.join(NAMES)}")
    if arguments.against and not (arguments.against / "mail").is_dir():
        parser.error(f"there is no package 'mail' in {arguments.against}")
    for unknown in set(arguments.only) - {scenario.attack for scenario in abuse.SCENARIOS}:
        parser.error(f"unknown scenario '{unknown}'")
    asyncio.run(main(arguments.name, arguments.against, arguments.only, arguments.proxy))
