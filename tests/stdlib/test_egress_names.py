"""Slow name servers: a call ends when its time is up, and nothing else waits for the resolver."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import pytest

from mail.egress.client import AsideThreads, fetch, system_addresses
from mail.egress.rules import EgressPolicy, FetchError
from mail.stdlib.http.actions import http_get

SLOW = 8  # seconds that the resolver takes when nobody lets it go; no test waits for it


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A resolver that does not answer; gives what is set when it is asked."""
    asked, over = threading.Event(), threading.Event()

    def look_up(*given: object, **more: object) -> list[object]:
        asked.set()
        over.wait(SLOW)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield asked
    over.set()


def test_a_fetch_ends_in_time_while_the_resolver_does_not(stuck: threading.Event) -> None:
    began = time.monotonic()
    with pytest.raises(FetchError, match=r"no complete answer within 1 seconds"):
        fetch("https://slow.example/", policy=EgressPolicy(), timeout=1.0)
    assert stuck.is_set()
    assert time.monotonic() - began < SLOW / 2


async def test_look_ups_leave_the_default_threads_to_others(
    stuck: threading.Event, configure: Callable[[str], None]
) -> None:
    configure("[stdlib.http]\ntimeout = 0.3\n")
    as_many_as_there_are = min(32, (os.cpu_count() or 1) + 4)
    gets = [
        http_get.function({"url": f"http://h{number}.example/"})
        for number in range(as_many_as_there_are)
    ]
    assert set(await asyncio.gather(*gets)) == {"Error: no complete answer within 0.3 seconds"}
    assert stuck.is_set()
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), SLOW / 2) == "free"


async def test_each_address_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))
    other = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 80, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: [entry, other, entry])
    assert await system_addresses("a.example", 80) == ["192.0.2.1", "2001:db8::1"]


def test_no_more_threads_than_agreed_run_and_the_rest_wait_in_line() -> None:
    threads = AsideThreads(2, "few")
    go_on, lock = threading.Event(), threading.Lock()
    running: list[str] = []

    def work() -> str:
        with lock:
            running.append(threading.current_thread().name)
        assert threading.current_thread().daemon
        go_on.wait(SLOW)
        return "done"

    futures = [threads.submit(work) for _ in range(5)]
    assert futures[4].cancel()
    assert len(running) <= 2
    go_on.set()
    assert [future.result(SLOW) for future in futures[:4]] == ["done"] * 4
    assert len(running) == 4
    assert len(set(running)) == 1  # all have the name
    with pytest.raises(CancelledError):
        futures[4].result(0)


def test_an_error_is_raised_where_the_result_is_awaited() -> None:
    def fail() -> None:
        raise KeyError("x")

    threads = AsideThreads(1, "one")
    with pytest.raises(KeyError):
        threads.submit(fail).result(SLOW)
    assert threads.submit(lambda: 1).result(SLOW) == 1
