"""Send one request for an agent, within the limits of ``[stdlib.http]``."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mail.config.stdlib import HttpConfig
from mail.egress.bodies import LimitedBody, read_body
from mail.egress.client import guarded_client, guarded_request, opened
from mail.egress.rules import FetchError
from mail.stdlib.settings import egress_policy
from mail.version import get_version

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")

USER_AGENT: Final = f"mail/{get_version()}"


async def exchange(
    method: str,
    url: str,
    show: Callable[["httpx.Response", LimitedBody], Result],
    *,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Result:
    """Send a request and return what ``show`` makes of the answer.

    Args:
        method: The verb.
        url: An address; redirects from it are followed when they lead to public addresses, too.
        show: Takes the answer and its body, of which no more was read than the settings allow.
        headers: Headers that were checked.
        body: Sent as JSON.

    Raises:
        FetchError: the address is refused, or there is no answer.
        ConfigError: the settings are wrong.
    """
    config = HttpConfig()
    policy = egress_policy(config)
    try:
        async with (
            asyncio.timeout(config.timeout),
            guarded_client(
                policy, timeout=config.timeout, headers={"User-Agent": USER_AGENT}
            ) as client,
            opened(
                client, guarded_request(client, method, url, headers=headers, json=body)
            ) as response,
        ):
            return show(response, await read_body(response, config.max_bytes))
    except TimeoutError:
        raise FetchError(f"no complete answer within {config.timeout:g} seconds") from None
