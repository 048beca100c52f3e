"""``mail top``: what a server does at the moment, from two looks at its ``GET /metrics``."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import cleaned, in_columns, tell
from mail.cli.credentials import KEYS, URL_VARIABLE, connected
from mail.cli.table import JSON, Namespace, argument, command, flag, option, positive
from mail.errors import ClientDecodeError, ClientHTTPError

if TYPE_CHECKING:
    from rich.console import Console

    from mail.client.client import MAILClient

_MOST_ROWS: Final = 20
_INTERVAL: Final = "seconds between two looks (default 2)"


class _Look:
    """The metrics of a server at a moment."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.at = time.monotonic()
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def rows(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the series with some labels, and their values."""
        named = [one for one in self._samples if one.name == name]
        return [(one.labels, one.value) for one in named if one.labels.items() >= labels.items()]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of these series."""
        return sum(value for _, value in self.rows(name, **labels))


class _Change:
    """The difference between two looks."""

    def __init__(self, before: _Look, now: _Look) -> None:
        self._before, self.now = before, now

    def rate(self, name: str, **labels: str) -> float:
        """Return by how much counters have grown a second."""
        return round(self._growth(name, **labels) / (self.now.at - self._before.at), 2)

    def within(self, name: str, share: float, **labels: str) -> float | None:
        """Return the seconds in which that share was done; None if nothing was, or in no bound."""
        wanted = self._growth(f"{name}_count", **labels) * share
        bounds = {found["le"] for found, _ in self.now.rows(f"{name}_bucket", **labels)}
        for bound in sorted(bounds, key=float)[:-1] if wanted else ():
            if self._growth(f"{name}_bucket", le=bound, **labels) >= wanted:
                return float(bound)
        return None

    def _growth(self, name: str, **labels: str) -> float:
        now, before = (look.total(name, **labels) for look in (self.now, self._before))
        return now - before if now >= before else now  # less than before: the server is a new one


def _picture(change: _Change) -> dict[str, Any]:
    """Return the figures as ``--json`` prints them: lines, and tables; times are in seconds."""
    now, rate, total = change.now, change.rate, change.now.total
    info, started = now.rows("mail_info"), total("process_start_time_seconds")
    if not info:
        raise ClientDecodeError("these are not the metrics of a MAIL server")
    requests, commits = "mail_http_request", {"operation": "commit"}
    codes = {labels["code"] for labels, _ in now.rows(f"{requests}s_total")}
    ends = [labels for labels, _ in now.rows("mail_task_runs_total")]
    return {
        "server": info[0][0] | {"uptime": int(time.time() - started) if started else None},
        "requests": {
            "per_second": rate(f"{requests}s_total"),
            "failed": sum(
                rate(f"{requests}s_total", code=code) for code in codes if code[0] == "5"
            ),
            "p95": change.within(f"{requests}_seconds", 0.95),
        },
        "tasks": {labels["state"]: int(tasks) for labels, tasks in now.rows("mail_tasks")},
        "ends": {labels["outcome"]: rate("mail_task_runs_total", **labels) for labels in ends},
        "turns": {
            "per_second": rate("mail_turns_total"),
            "now": int(total("mail_turns_in_progress")),
        },
        "store": {
            "up": int(total("mail_store_up")),
            "commits": rate("mail_store_seconds_count", **commits),
            "p95": change.within("mail_store_seconds", 0.95, **commits),
        },
        "nodes": {
            "alive": int(total("mail_nodes")),
            "takeovers": int(total("mail_task_takeovers_total")),
            "refused": int(total("mail_commits_refused_total")),
        },
        "models": _models(change),
        **{name: _waiting(now, f"mail_{name}") for name in ("queue", "outbox", "webhook")},
    }


def _models(change: _Change) -> list[dict[str, Any]]:
    """Return a row for each model."""
    seconds, tokens, rate = "mail_model_call_seconds", "mail_model_tokens_total", change.rate
    return [
        {
            **model,
            "calls": rate(f"{seconds}_count", **model),
            "p50": change.within(seconds, 0.5, **model),
            "p95": change.within(seconds, 0.95, **model),
            "retries": rate("mail_model_retries_total", **model),
            "prompt": rate(tokens, kind="prompt", **model),
            "completion": rate(tokens, kind="completion", **model),
            "dollars": round(change.now.total("mail_model_cost_dollars_total", **model), 4),
        }
        for model, _ in change.now.rows(f"{seconds}_count")[:_MOST_ROWS]
    ]


def _waiting(now: _Look, name: str) -> list[dict[str, Any]]:
    rows, ages = now.rows(f"{name}_messages")[:_MOST_ROWS], f"{name}_oldest_seconds"
    return [
        labels | {"messages": int(number), "oldest": round(now.total(ages, **labels), 1)}
        for labels, number in rows
    ]


def _lines(picture: dict[str, Any]) -> list[str]:
    """Return a picture for people."""
    facts, tables = [], list[str]()
    for name, part in picture.items():
        if isinstance(part, dict):
            told = [f"{key.replace('_', ' ')} {_cell(each)}" for key, each in part.items()]
            facts.append((name, ", ".join(told)))
        elif part:
            rows = [[_cell(each) for each in row.values()] for row in part]
            tables += ["", name, *in_columns([[*part[0]], *rows], 60)]
    return [*in_columns(facts), *tables]


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@command(
    argument("url", f"the server (default: {URL_VARIABLE})", required=False),
    option("-i", "--interval", type=positive, default=2.0, metavar="SECONDS", told=_INTERVAL),
    flag("--once", told="print one picture, and end, as without a terminal"),
    *KEYS,
    JSON,
)
async def top(arguments: Namespace) -> int:
    """Show what a server does until Ctrl-C; it takes the token of an administrator."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    async with connected(arguments) as client:
        look = _Look(await client.get_metrics())
        if console.is_terminal and not (arguments.once or arguments.json):
            await _follow(client, look, arguments.interval, console)
        await asyncio.sleep(arguments.interval)
        picture = _picture(_Change(look, _Look(await client.get_metrics())))
    return tell(arguments, picture, *_lines(picture))


async def _follow(client: "MAILClient", look: _Look, interval: float, console: "Console") -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(interval)
            try:
                before, look = look, _Look(await client.get_metrics())
                text = "\n".join(_lines(_picture(_Change(before, look))))
            except ClientHTTPError as error:  # it may come back
                text = str(error)
            live.update(Text(cleaned(text), no_wrap=True), refresh=True)
