"""A world outside that is not there: names, addresses and servers in a table, and no packets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

PUBLIC = "93.184.215.14"
OTHER = "151.101.1.6"

NOT_PUBLIC = [
    ("0.0.0.0", "unspecified"),  # noqa: S104
    ("0.1.2.3", "reserved"),
    ("10.0.0.1", "private"),
    ("100.64.0.1", "private"),
    ("100.100.100.200", "metadata"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "metadata"),
    ("169.254.169.254", "metadata"),
    ("169.254.170.2", "link-local"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.192", "metadata"),
    ("192.88.99.1", "6to4"),
    ("::ffff:192.88.99.1", "6to4"),
    ("192.168.1.1", "private"),
    ("198.18.0.1", "reserved"),
    ("203.0.113.1", "reserved"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::127.0.0.1", "reserved"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:169.254.169.254", "metadata"),
    ("::ffff:a00:1", "private"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b::a9fe:a9fe", "metadata"),
    ("64:ff9b:1::1", "reserved"),
    ("100::1", "reserved"),
    ("2001::1", "reserved"),
    ("2001:db8::1", "reserved"),
    ("3fff::1", "reserved"),
    ("3fff:fff::1", "reserved"),
    ("192.0.0.8", "reserved"),
    ("2002:7f00:1::", "6to4"),
    ("fc00::1", "private"),
    ("fd00:ec2::23", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("fd20:ce::254", "metadata"),
    ("fe80::1", "link-local"),
    ("fec0::1", "reserved"),
    ("ff02::1", "multicast"),
]
"""Addresses that a policy without exceptions refuses, and what they are."""

TRICKS = [
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1./",
    "http://0/",
    "http://[::1%25lo]/",
    "http://[fe80::1%25eth0]/",
    "http://[::ffff:7f00:1]:80/",
    "http://public.example@127.0.0.1/",
    "http://public.example:80@[::1]:80/",
    "http://127.0.0.1#@public.example/",
    "http://127.0.0.1?@public.example/",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://public%2eexample/",
    "http://-x.example/",
    "http://a..example/",
    "http://" + "a." * 130 + "example/",
    "http:///x",
    "http://public.example:0/",
    "http://public.example:99999/",
    "http://public.example:x/",
    "http://public.example\r\nHost: inside/",
    "//public.example/",
    "public.example",
    "",
    "file:///etc/passwd",
    "ftp://public.example/",
    "gopher://public.example/",
    "unix:///run/docker.sock",
    "data:text/plain,hello",
]
"""URLs that lead nowhere, however they are read."""

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
