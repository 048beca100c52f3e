"""The data analysis example: a question is broadcast, and whoever can compute an answer sends it.

The table, ``data/harbour.csv``, is made up.
"""

import csv
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples import Prompted, example
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction

LEAD_SYSPROMPT: Final = """\
You lead a team that has a table about a harbour: for each month and quay, the number of ships and
the cargo in tonnes.

1. Send the user's question to the whole team at once with `send_broadcast`, in full. `statistician`
   describes the figures of a column; `comparer` compares them by month or quay, if that is asked.
2. Call `await_message` until everyone whose part it is has answered. Somebody who has nothing to
   add keeps silent, so do not wait for `comparer` if no comparison is asked for.
3. Call `task_complete` with the answer, in full sentences and with the figures as the team gave
   them. Compute nothing yourself.
"""

STATISTICIAN_SYSPROMPT: Final = """\
You describe the figures of a harbour table. Its columns with numbers are `ships` and `cargo`.

When a broadcast or a request asks about one of them, call `describe_column`, then answer the sender
with `send_response` and the figures as the tool gives them. If it is about none of your columns,
call `acknowledge_broadcast` with a short note, and send nothing.
"""

COMPARER_SYSPROMPT: Final = """\
You compare the figures of a harbour table by `month` or by `quay`. The figures are `ships` and
`cargo`.

When a broadcast or a request asks for a comparison by one of the two, call `compare_groups`, then
answer the sender with `send_response` and the figures as the tool gives them. If nothing is to be
compared, call `acknowledge_broadcast` with a short note, and send nothing.
"""

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
    text = (files("mail.examples") / "data" / "harbour.csv").read_text(encoding="utf-8")
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


async def describe_column(args: dict[str, Any]) -> str:
    """Return every statistic of a column on one line.

    Args:
        args: ``column`` (``ships`` or ``cargo``).

    Raises:
        ToolError: there is no such column.
    """
    name = _chosen(args, "column", NUMBERS)
    figures = column(name)
    told = ", ".join(f"{key} {shown(compute(figures))}" for key, compute in STATISTICS.items())
    return f"{name}: {told}"


async def compare_groups(args: dict[str, Any]) -> str:
    """Return a statistic of a column for each group of rows, the largest first.

    Args:
        args: ``column`` (``ships`` or ``cargo``), ``by`` (``month`` or ``quay``), ``statistic``
            (one of `STATISTICS`; the sum by default).

    Raises:
        ToolError: there is no such column or statistic.
    """
    name, by = _chosen(args, "column", NUMBERS), _chosen(args, "by", GROUPS)
    statistic = _chosen({"statistic": "sum", **args}, "statistic", STATISTICS)
    compute = STATISTICS[statistic]
    values = {group: compute(figures) for group, figures in grouped(name, by).items()}
    ranked = sorted(values, key=lambda group: -values[group])
    told = ", ".join(f"{group} {shown(values[group])}" for group in ranked)
    return f"{statistic} of {name} by {by}: {told}"


def _chosen(args: dict[str, Any], key: str, known: Collection[str]) -> str:
    value = args.get(key)
    if not isinstance(value, str) or value not in known:
        raise ToolError(f"{key} must be one of {', '.join(known)}")
    return value


_COLUMN: Final = {"type": "string", "enum": list(NUMBERS), "description": "The figures"}

describe_column_action: Final = MAILAction(
    name="describe_column",
    description="Describe a column: count, sum, mean, median, smallest, largest, spread",
    parameters={"type": "object", "properties": {"column": _COLUMN}, "required": ["column"]},
    function=describe_column,
    idempotent=True,
)

compare_groups_action: Final = MAILAction(
    name="compare_groups",
    description="Compare a column's figures by month or by quay, the largest first",
    parameters={
        "type": "object",
        "properties": {
            "column": _COLUMN,
            "by": {"type": "string", "enum": list(GROUPS), "description": "How to group the rows"},
            "statistic": {
                "type": "string",
                "enum": list(STATISTICS),
                "description": "What to compute for each group; the sum by default",
            },
        },
        "required": ["column", "by"],
    },
    function=compare_groups,
    idempotent=True,
)


class LiteLLMAnalysisLeadFunction(Prompted, LiteLLMSupervisorFunction):
    """Broadcasts a question to the whole team and puts the answers together."""

    prompt = LEAD_SYSPROMPT


class LiteLLMStatisticianFunction(Prompted, LiteLLMActionAgentFunction):
    """Describes a column as a whole."""

    prompt = STATISTICIAN_SYSPROMPT


class LiteLLMComparerFunction(Prompted, LiteLLMActionAgentFunction):
    """Compares groups of rows."""

    prompt = COMPARER_SYSPROMPT


EXAMPLE: Final = example(
    __name__,
    "LiteLLMStatisticianFunction",
    ".data_analysis:STATISTICIAN",
    (describe_column_action,),
    "STATISTICIAN_SYSPROMPT",
)
"""The statistician."""
