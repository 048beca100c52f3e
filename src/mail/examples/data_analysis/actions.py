"""The actions of the data analysis example: statistics by name, over columns by name."""

from collections.abc import Collection
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.errors import ToolError
from mail.examples.data_analysis.table import GROUPS, NUMBERS, STATISTICS, column, grouped, shown


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
