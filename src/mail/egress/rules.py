"""Addresses that outgoing requests may reach: public ones, and those that a policy names."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mail.errors import ConfigError, MAILError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SPECIAL: Final[tuple[tuple[str, _Network], ...]] = (
    ("a cloud metadata address", ipaddress.ip_network("169.254.169.254/32")),
    ("a cloud metadata address", ipaddress.ip_network("fd00:ec2::/32")),
    ("a cloud metadata address", ipaddress.ip_network("fd20:ce::/32")),
    ("a cloud metadata address", ipaddress.ip_network("100.100.100.200/32")),
    ("a cloud metadata address", ipaddress.ip_network("192.0.0.192/32")),
    ("a cloud metadata address", ipaddress.ip_network("168.63.129.16/32")),
    ("a 6to4 address", ipaddress.ip_network("2002::/16")),
    ("a 6to4 relay address", ipaddress.ip_network("192.88.99.0/24")),
    # These, or parts of them, count as public for some versions of Python's ipaddress.
    ("a reserved address", ipaddress.ip_network("192.0.0.0/24")),
    ("a reserved address", ipaddress.ip_network("2001::/23")),
    ("a reserved address", ipaddress.ip_network("3fff::/20")),
    *(
        ("a private address", ipaddress.ip_network(each))
        for each in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    ),
)
_LOOPBACK: Final = "a loopback address"
_PRIVATE: Final = frozenset({_LOOPBACK, "a private address"})
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMERIC_END: Final = re.compile(r"(\A|\.)([0-9]+|0x[0-9a-f]*)\Z")
_BRACKETED: Final = re.compile(r"\[([^\]]+)\](?::([0-9]{1,5}))?")
_NAMED_PORT: Final = re.compile(r"([^:/\[\]]+?)\.?(?::([0-9]{1,5}))?")
_MAX_NAME: Final = 253
_MAX_PORT: Final = 65535


class FetchError(MAILError, ValueError):
    """A request that got no usable answer; the text never holds the address's credentials."""


class NoAnswer(FetchError):
    """Nothing answers there: the name is unknown, no connection comes about, or it is silent."""


class RefusedAddress(FetchError):
    """The address may not be reached; no connection to it was attempted."""


class TooLarge(FetchError):
    """The document is there, but larger than it may be."""


class NotPublic(RefusedAddress):
    """The address leads to something that is not public, and the policy does not allow it."""


@dataclass(frozen=True)
class _Rule:
    """One entry of ``allow``: a host name or a network, and the port when it is bound to one."""

    name: str | None
    network: _Network | None
    port: int | None


@dataclass(frozen=True)
class EgressPolicy:
    """The addresses that outgoing requests may reach beside public ones.

    Attributes:
        allow: Host names, ``host:port``, IP addresses (``[::1]:8080`` with a port) or networks
            such as ``10.0.0.0/8`` that may be reached although they are not public. A name stands
            for whatever it resolves to.
        https_only: Refuse plain http, everywhere.
        private: Loopback and private addresses may be reached, too; link-local and reserved ones
            and those of a cloud's metadata may not.
        loopback: Loopback addresses may be reached, but by no other name than ``localhost``.

    Raises:
        ConfigError: an entry of ``allow`` is none of these.
    """

    allow: tuple[str, ...] = ()
    https_only: bool = False
    private: bool = False
    loopback: bool = False

    def __post_init__(self) -> None:
        _ = self._rules

    @cached_property
    def _rules(self) -> tuple[_Rule, ...]:
        return tuple(_read_rule(entry) for entry in self.allow)

    def names(self, host: str, port: int) -> bool:
        """Tell whether a host name is allowed as such."""
        return any(rule.name == host and rule.port in (None, port) for rule in self._rules)

    def covers(self, address: Address, port: int) -> bool:
        """Tell whether an address is allowed although it may not be public."""
        return any(
            rule.network is not None and rule.port in (None, port) and address in rule.network
            for rule in self._rules
        )


def check_host(scheme: str, host: str, policy: EgressPolicy) -> str:
    """Return the host of an address in lower case, without the dot that may end it.

    Args:
        scheme: The address's scheme, in lower case.
        host: Its host as it would go into a request: ASCII, no brackets.
        policy: The permitted addresses.

    Raises:
        RefusedAddress: the scheme is not http or https, or the host is no plain name or address.
    """
    allowed = ("https",) if policy.https_only else ("http", "https")
    if scheme not in allowed:
        names = " and ".join(f"{each}://" for each in allowed)
        raise RefusedAddress(f"only full {names} addresses can be fetched")
    name = host.lower().removesuffix(".")
    if not name:
        raise RefusedAddress("the address contains no host")
    if ":" in name or literal_address(name) is not None:
        if literal_address(name) is None or "%" in name:
            raise RefusedAddress(f"'{host}' is not a plain IPv6 address")
        return name
    if _NUMERIC_END.search(name):
        raise RefusedAddress(
            f"'{host}' is not a dotted IPv4 address; write it in the form 192.0.2.1"
        )
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise RefusedAddress("the host in the address is not a valid host name")
    return name


def literal_address(host: str) -> Address | None:
    """Return the IP address that a host is, or None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def check_addresses(
    host: str, port: int, found: Iterable[str], policy: EgressPolicy
) -> Sequence[Address]:
    """Return the addresses of a host, when every one of them may be reached.

    Raises:
        NoAnswer: there is none.
        FetchError: one cannot be read.
        NotPublic: one of them is not public, and the policy does not allow it.
    """
    try:
        addresses = [ipaddress.ip_address(each) for each in found]
    except ValueError:
        raise FetchError(f"'{host}' resolves to something that is not an IP address") from None
    if not addresses:
        raise NoAnswer(f"'{host}' has no address")
    if policy.names(host, port):
        return addresses
    allowed = _PRIVATE if policy.private else frozenset()
    if policy.loopback and (host == "localhost" or literal_address(host) is not None):
        allowed |= {_LOOPBACK}
    for address in addresses:
        kind = _not_public(address)
        if kind and kind not in allowed and not policy.covers(_meant(address), port):
            shown = "" if str(address) == host else f" (from '{host}')"
            raise NotPublic(f"{address}{shown} is {kind}, not a public address")
    return addresses


def _not_public(address: Address) -> str | None:
    """Say what keeps an address from being public, or None."""
    address = _meant(address)
    for kind, network in _SPECIAL:
        if address in network:
            return kind
    kinds = (
        (_LOOPBACK, address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("an unspecified address", address.is_unspecified),
        ("a multicast address", address.is_multicast),
        ("a reserved address", not address.is_global),
        ("a reserved address", address.version == 6 and address not in _GLOBAL_UNICAST),
    )
    return next((kind for kind, holds in kinds if holds), None)


def _meant(address: Address) -> Address:
    """Return the IPv4 address that a mapped or NAT64 form leads to, else the address."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _read_rule(entry: str) -> _Rule:
    text = entry.strip().lower()
    match = _BRACKETED.fullmatch(text) or _NAMED_PORT.fullmatch(text)
    host = match[1] if match else text
    port = int(match[2]) if match and match[2] else None
    if port is None or 0 < port <= _MAX_PORT:
        try:
            return _Rule(None, ipaddress.ip_network(host, strict=False), port)
        except ValueError:
            if _NAME.fullmatch(host) and not _NUMERIC_END.search(host):
                return _Rule(host, None, port)
    raise ConfigError(
        f"'{entry}' is not a valid entry: use a host name, host:port, an IP address or a "
        "network such as 10.0.0.0/8"
    )
