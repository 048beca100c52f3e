"""The bundled table, and what may be computed of it: a fixed set of statistics, no expressions."""

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

GROUPS: Final = ("month", "quay")
"""The columns that rows may be grouped by."""

NUMBERS: Final = ("ships", "cargo")
"""The columns with numbers."""

STATISTICS: Final[Mapping[str, Callable[[Sequence[int]], float]]] = MappingProxyType(
    {
        "count": len,
        "sum": sum,
        "mean": statistics.fmean,
        "median": statistics.median,
        "min": min,
        "max": max,
        "stdev": statistics.pstdev,
    }
)
"""Every statistic by its name."""


@cache
def _rows() -> tuple[Mapping[str, str], ...]:
    text = (files("mail.examples.data_analysis") / "harbour.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def column(name: str) -> list[int]:
    """Return the figures of one of `NUMBERS` in the order of the rows."""
    return [int(row[name]) for row in _rows()]


def grouped(name: str, by: str) -> dict[str, list[int]]:
    """Return the figures of one of `NUMBERS` by the values of one of `GROUPS`."""
    groups: dict[str, list[int]] = {}
    for row in _rows():
        groups.setdefault(row[by], []).append(int(row[name]))
    return groups


def shown(value: float) -> str:
    """Return a figure with two decimal places at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
