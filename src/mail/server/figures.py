"""The answer of ``GET /metrics``: the counts of this process, and figures of what is stored.

The store is asked once in a few seconds at most, however many scrape. While it does not answer, its
figures are left out, and ``mail_store_up`` is 0.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from mail import metrics
from mail.db.figures import Labels, StoreFigures, Waiting
from mail.errors import StoreError
from mail.version import get_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

_STORE_SECONDS: Final = 2.0
T = TypeVar("T")


class CachedAnswer(Generic[T]):
    """A store's answer to a question that is asked once in so many seconds at most.

    Attributes:
        answer: The newest answer; None before, and while the store fails.
        fails: Whether the store does not answer in time.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._asking = asyncio.Lock()
        self._ask_again = 0.0
        self.answer: T | None = None
        self.fails = False

    async def look(self) -> "CachedAnswer[T]":
        """Ask if it is time; whoever comes meanwhile waits for the same answer."""
        async with self._asking:
            if self._ask_again <= time.monotonic():
                try:
                    async with asyncio.timeout(_STORE_SECONDS):
                        self.answer, self.fails = await self._ask(), False
                except (StoreError, TimeoutError):
                    self.answer, self.fails = None, True
                self._ask_again = time.monotonic() + self._seconds
        return self


def to_text(swarm: str, turns: int, stored: StoreFigures | None, node: str = "") -> bytes:
    """Return all metrics in Prometheus' text format. It takes a while: call it in a thread.

    Args:
        swarm: The swarm that is served.
        turns: The number of turns under way in this process.
        stored: The figures of the store, unless it fails.
        node: A label for the process's own figures, if it shares its port with others.
    """
    from prometheus_client.exposition import generate_latest
    from prometheus_client.process_collector import ProcessCollector

    found = [*_counted(), *ProcessCollector(registry=None).collect()]
    info: dict[Labels, float] = {(get_version(), swarm): 1}
    found.append(_gauge("mail_info", "The server.", info, "version", "swarm"))
    found.append(_gauge("mail_turns_in_progress", "Turns of agents under way.", {(): turns}))
    for sample in (sample for metric in found if node for sample in metric.samples):
        sample.labels["node"] = node
    found.append(_gauge("mail_store_up", "1 if the database answers.", {(): stored is not None}))
    found += _stored(stored, time.time()) if stored is not None else ()
    return generate_latest(SimpleNamespace(collect=lambda: found))  # all that it calls


def _counted() -> "Iterator[Metric]":
    from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

    for counter in metrics.COUNTERS:
        family = CounterMetricFamily(counter.name, counter.told, labels=counter.labels)
        for labels, value in counter.values.copy().items():
            family.add_metric(labels, value)
        yield family
    for histogram in metrics.HISTOGRAMS:
        shown = HistogramMetricFamily(histogram.name, histogram.told, labels=histogram.labels)
        bounds = (*map(str, histogram.bounds), "+Inf")
        for labels, series in histogram.series.copy().items():
            *counts, total = series.copy()
            shown.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield shown


def _stored(stored: StoreFigures, now: float) -> "Iterator[Metric]":
    yield _gauge("mail_tasks", "Open tasks.", stored.tasks, "state")
    told = "messages of running tasks that wait for a turn, or are in one"
    yield from _waiting("mail_queue", told, stored.queue, now, "tier")
    told = "messages for other swarms"
    yield from _waiting("mail_outbox", told, stored.outbox, now, "peer", "state")
    told = "messages for the webhook"
    yield from _waiting("mail_webhook", told, stored.webhooks, now, "state")
    yield _gauge("mail_nodes", "Servers at work on the database.", {(): stored.nodes})


def _waiting(
    name: str, told: str, found: Mapping[Labels, Waiting], now: float, *labels: str
) -> "Iterator[Metric]":
    numbers = {key: waiting.number for key, waiting in found.items()}
    yield _gauge(f"{name}_messages", f"Number of {told}.", numbers, *labels)
    ages = {key: _age(waiting.oldest, now) for key, waiting in found.items()}
    yield _gauge(f"{name}_oldest_seconds", f"Age of the oldest of the {told}.", ages, *labels)


def _age(moment: str, now: float) -> float:
    """Return the seconds since a time; 0 for a text that is none."""
    try:
        return max(0.0, now - datetime.fromisoformat(moment).timestamp())
    except ValueError:
        return 0.0


def _gauge(name: str, told: str, values: Mapping[Labels, float], *labels: str) -> "Metric":
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(name, told, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
