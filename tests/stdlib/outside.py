"""A world outside that is not there: names, addresses and servers in a table, and no packets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

PUBLIC = "93.184.215.14"
OTHER = "151.101.1.6"

Handler = Callable[[httpx.Request], httpx.Response]


def say_hello(request: httpx.Request) -> httpx.Response:
    """Answer every request."""
    return httpx.Response(200, text=f"hello from {request.headers['host']}")


@dataclass
class Outside:
    """Stands in for the resolver and for the transport, and remembers what they were asked.

    Attributes:
        names: The addresses of each host name; a list of lists gives another answer each time.
        handler: Answers requests.
        asked: The names that were resolved.
        requests: The requests that got as far as a connection, as they went out.
    """

    names: dict[str, list[Any]] = field(default_factory=dict)
    handler: Handler = say_hello
    asked: list[str] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    def resolve(self, host: str, port: int) -> list[str]:
        """Answer as a resolver does."""
        self.asked.append(host)
        found = self.names.get(host)
        if found is None:
            raise OSError("no such name")
        if found and isinstance(found[0], list):
            return found.pop(0)
        return found

    @property
    def transport(self) -> httpx.MockTransport:
        """The transport that answers from here."""

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return self.handler(request)

        return httpx.MockTransport(answer)

    @property
    def connected(self) -> list[str]:
        """The hosts that were connected to, as the transport got them."""
        return [request.url.host for request in self.requests]
