"""What a request takes along when a redirect leads it on."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

__all__ = ["led_on"]

# What a request keeps when a redirect leads to another host: nothing that could be a credential.
_HARMLESS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)


def led_on(
    first: "httpx.Request", sent: "httpx.Request", onward: "httpx.Request"
) -> "httpx.Request":
    """Return the next request with the headers that it may have.

    Where scheme, host and port stay, that is all of them; httpx itself drops the cookies that the
    first request came with. On any other way, but from http to https of the same host, everything
    goes that could be a credential.

    Args:
        first: The request as the caller made it.
        sent: The one that was answered with a redirect.
        onward: What httpx made of that answer; it is changed.
    """
    before, after = _origin(sent), _origin(onward)
    if before == after:
        if _origin(first) == after:
            _keep_cookies(first, onward)
        return onward
    upgraded = before[0] == "http" and before[2] is None and after == ("https", before[1], None)
    if not upgraded:
        for name in list(onward.headers):
            if name.lower() not in _HARMLESS:
                del onward.headers[name]
    return onward


def _origin(request: "httpx.Request") -> tuple[str, bytes, int | None]:
    return request.url.scheme, request.url.raw_host, request.url.port


def _keep_cookies(first: "httpx.Request", onward: "httpx.Request") -> None:
    """Add the first request's cookies to those that the server has set since; the newer win."""
    given = _cookies(first)
    if given:
        onward.headers["Cookie"] = "; ".join((given | _cookies(onward)).values())


def _cookies(request: "httpx.Request") -> dict[str, str]:
    pairs = (pair.strip() for pair in request.headers.get("cookie", "").split(";"))
    return {pair.partition("=")[0].rstrip(): pair for pair in pairs if pair}
