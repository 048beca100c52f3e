"""``python -m benchmarks [NAME …]``: run the benchmarks and print their figures.

These are comparisons within one run on one machine: read the ratios, not the absolute times.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

from benchmarks import crowd, edge, flatness, interrupts, models, throughput

REPORTS: Mapping[str, Callable[[], Awaitable[None]]] = {
    "throughput": throughput.report,
    "flatness": flatness.report,
    "interrupts": interrupts.report,
    "models": models.report,
    "edge": edge.report,
    "crowd": crowd.report,
}


async def main(names: list[str]) -> int:
    """Run the named reports, or all; return the exit code."""
    unknown = set(names) - set(REPORTS)
    if unknown:
        print(f"unknown benchmark {sorted(unknown)[0]!r}; one of {', '.join(REPORTS)}")
        return 2
    for name in names or REPORTS:
        print(f"--- {name}")
        await REPORTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
