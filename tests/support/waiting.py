"""How tests wait for what others bring about."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something is so, and return it."""
    async with asyncio.timeout(seconds):
        while True:
            found = check()
            found = await found if inspect.isawaitable(found) else found
            if found:
                return found
            await asyncio.sleep(0.005)
