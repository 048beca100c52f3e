"""The async function around an action's callable, whatever kind of callable that is."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from mail.core.actions import ActionFunction

__all__ = ["make_action_function"]


def make_action_function(
    name: str,
    callback: Callable[[Any], Any],
    read: Callable[[dict[str, Any]], Any] | None,
    timeout: float | None,
) -> ActionFunction:
    """Wrap a callable so that it can be awaited, gets checked arguments and must return text.

    Args:
        name: The action's name, for error texts.
        callback: Takes one argument; plain functions run in a thread, so they may block.
        read: Makes of the arguments what the callable takes; the dictionary itself when None.
        timeout: Seconds that one call may take. A plain function that overruns goes on in its
            thread; its result is dropped.

    Returns:
        A coroutine function that raises what ``read`` raises, TimeoutError,
        TypeError for a result that is not text, and whatever the callable raises.
    """

    async def run(args: dict[str, Any]) -> str:
        payload = read(args) if read else args
        timer = asyncio.timeout(timeout)
        try:
            async with timer:
                result = await _invoke(callback, payload)
        except TimeoutError:
            if not timer.expired():
                raise
            raise TimeoutError(f"action '{name}' did not finish within {timeout:g} s") from None
        if not isinstance(result, str):
            raise TypeError(f"Action '{name}' returned {type(result).__name__}, expected str.")
        return result

    # Who judges an action by where its code comes from looks behind this function.
    run.__wrapped__ = callback  # type: ignore[attr-defined]  # as functools.wraps does
    return run


async def _invoke(callback: Callable[[Any], Any], payload: Any) -> Any:
    if _is_coroutine_function(callback):
        return await callback(payload)
    result = await asyncio.to_thread(_in_thread, callback, payload)
    return await result if inspect.isawaitable(result) else result


def _in_thread(callback: Callable[[Any], Any], payload: Any) -> Any:
    try:
        return callback(payload)
    except StopIteration as error:  # no future carries it: whoever waits would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


def _is_coroutine_function(callback: Callable[..., Any]) -> bool:
    while isinstance(callback, functools.partial):
        callback = callback.func
    called = getattr(type(callback), "__call__", None)  # noqa: B004 - its kind is what we ask for
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called)
