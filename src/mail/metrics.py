"""Counts of what this process has done since its start, and how long it took, for ``GET /metrics``.

Whoever knows counts, with one call. It needs no library and no settings, and takes a fraction of a
microsecond. What is stored, such as mail that waits, is looked up when somebody asks: see
`mail.db.figures`. Labels have few values, at most `MOST_SERIES` a metric whatever others send.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

MOST_SERIES: Final = 1000
"""The combinations of labels that a metric has; what comes beyond counts as `OTHER`."""
OTHER: Final = "other"

_LONGEST_LABEL: Final = 200


class Counter:
    """A number for each combination of labels that only grows; ``known`` labels begin with 0.

    No lock is taken: a count may be lost when two threads count the same at the same moment.
    """

    def __init__(self, name: str, told: str, *labels: str, known: Sequence[str] = ()) -> None:
        self.name, self.told, self.labels = name, told, labels
        begun: list[tuple[str, ...]] = [(label,) for label in known] if labels else [()]
        self.values: dict[tuple[str, ...], float] = dict.fromkeys(begun, 0)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Count something with these values of the labels."""
        if labels not in self.values:
            labels = _bounded(labels, len(self.values))
        self.values[labels] = self.values.get(labels, 0) + amount


class Histogram:
    """Durations in seconds for each combination of labels, in buckets with these upper ``bounds``.

    A series has a count for each bucket, one for what is longer, and the sum of all durations.
    """

    def __init__(self, name: str, told: str, *labels: str, bounds: Sequence[float]) -> None:
        self.name, self.told, self.labels, self.bounds = name, told, labels, bounds
        self.series: dict[tuple[str, ...], list[float]] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Count something that took so long, with these values of the labels."""
        series = self.series.get(labels)
        if series is None:
            labels = _bounded(labels, len(self.series))
            series = self.series.setdefault(labels, [0] * (len(self.bounds) + 2))
        series[bisect_left(self.bounds, seconds)] += 1
        series[-1] += seconds


def _bounded(labels: tuple[str, ...], known: int) -> tuple[str, ...]:
    if known >= MOST_SERIES:
        return (OTHER,) * len(labels)
    return tuple(label[:_LONGEST_LABEL] for label in labels)


_SHORT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_REQUEST: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LONG: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

REQUESTS: Final = Counter(
    "mail_http_requests_total", "HTTP requests that have ended.", "method", "route", "code"
)
REQUEST_SECONDS: Final = Histogram(
    *("mail_http_request_seconds", "HTTP requests with their waits and streams.", "route"),
    bounds=_REQUEST,
)
RUNS: Final = Counter(
    *("mail_task_runs_total", "Runs of tasks that have ended or paused.", "outcome"),
    known=("completed", "paused", "failed", "cancelled"),
)
RUN_SECONDS: Final = Histogram(
    "mail_task_run_seconds", "Runs of tasks that have ended.", "outcome", bounds=_LONG
)
TURNS: Final = Counter("mail_turns_total", "Turns that were stored.", "agent", "outcome")
MODEL_SECONDS: Final = Histogram(
    *("mail_model_call_seconds", "Model calls that succeeded, with their retries.", "model"),
    bounds=_LONG,
)
MODEL_TOKENS: Final = Counter(
    *("mail_model_tokens_total", "Tokens of model calls; cached ones are prompt tokens, too."),
    *("model", "kind"),
)
MODEL_COST: Final = Counter(
    "mail_model_cost_dollars_total", "Cost of model calls whose price is known.", "model"
)
MODEL_RETRIES: Final = Counter(
    "mail_model_retries_total", "Model calls that are made again.", "model", "code"
)
STORE_SECONDS: Final = Histogram(
    *("mail_store_seconds", "Reads and transactions, as their callers wait.", "operation"),
    bounds=_SHORT,
)
CLAIMS: Final = Counter("mail_task_claims_total", "Stored tasks that this process has taken up.")
TAKEOVERS: Final = Counter("mail_task_takeovers_total", "Those of a process that is gone.")
REFUSED: Final = Counter(
    "mail_commits_refused_total", "Commits of tasks that another process had taken up meanwhile."
)
_MODEL: Final = (MODEL_TOKENS, MODEL_COST, MODEL_RETRIES)
COUNTERS: Final = (REQUESTS, RUNS, TURNS, *_MODEL, CLAIMS, TAKEOVERS, REFUSED)
HISTOGRAMS: Final = (REQUEST_SECONDS, RUN_SECONDS, MODEL_SECONDS, STORE_SECONDS)
