"""A limit for a provider's silence, at the price of one timer for many pieces.

Signs of life are bytes: libraries swallow the comments, empty lines and events without content with
which providers say that a model is still thinking. So they are heard below the libraries, where the
transports of HTTP hand on what they received.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from mail.egress.client import AsideThreads
from mail.errors import ModelError
from mail.llm.profiles import Profile
from mail.llm.settings import LLMSettings

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Alive = Callable[[], None]

_alive: ContextVar[Alive | None] = ContextVar("mail_alive", default=None)
_provider: ContextVar[str] = ContextVar("mail_provider", default="")
AT_ONCE: Final = "(at once)"
"""In place of a provider: nothing that its calls need before they begin has to be waited for."""
_HEARD: Final = "_heard_by_mail"
_HELD_UP: Final = 0.1
_THREADS: Final = 4
_MOST_PROVIDERS: Final = 128

_USUAL_SILENCE: Final = 120.0
_USUAL_TOTAL: Final = 600.0
_THINKING_SILENCE: Final = 600.0
_THINKING_TOTAL: Final = 1800.0
LONGEST: Final = 3600.0
"""The deadline in seconds of a call that has none of its own yet."""
_SLACK: Final = 5.0
_PAID_ATTEMPTS: Final = 2
_TOO_LATE: Final = "model call failed: the provider did not answer in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time limits of a call, in seconds.

    ``silence`` bounds the time in which nothing arrives, None if that says nothing; ``total`` the
    call with its retries. ``thinks`` tells whether the model is paid for what it does in silence.
    """

    silence: float | None
    total: float
    thinks: bool

    @property
    def read(self) -> float:
        """The library's own limit for the next byte; we are to give up before it does."""
        return (self.total if self.silence is None else self.silence) + _SLACK


def patience_of(settings: LLMSettings, profile: Profile) -> Patience:
    """Return how long a call is waited for: as set, or else as long as such a model takes.

    A reply that is not streamed arrives at once, after any time.
    """
    thinks = profile.thinks in ("default", "always") or (
        settings.effort is not None or (profile.wire == "responses" and profile.thinks != "no")
    )
    silence, total = settings.timeout, settings.deadline
    if silence is None and profile.stream:
        silence = max(_THINKING_SILENCE if thinks else _USUAL_SILENCE, profile.silence or 0.0)
    if total is None:
        total = max(_THINKING_TOTAL if thinks else _USUAL_TOTAL, profile.total or 0.0)
    return Patience(silence=silence, total=total, thinks=thinks)


def too_late(thinks: bool) -> ModelError:
    """Return the error of a call that was waited for long enough.

    A model that thinks is paid for what it did meanwhile: it is asked only once more.
    """
    most = _PAID_ATTEMPTS if thinks else None
    return ModelError(_TOO_LATE, most_attempts=most)


class Silence:
    """Bounds each of many waits: ``with`` it, one waits, like with `asyncio.timeout_at`.

    A wait, and a sign of life, only note the time; the one timer behind them looks at that note
    when it goes off and is set anew if there is time left, so that a piece that comes in time costs
    next to nothing. Each wait is in a task, and no other is within it. `TimeoutError` says that it
    took too long.

    Args:
        seconds: The limit of a wait; None for that of the last one.
        end: The deadline of the last wait, in the loop's time.
    """

    def __init__(self, seconds: float | None, end: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = float("inf") if seconds is None else seconds
        self._end = end
        self._heard = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    def __enter__(self) -> None:
        """Begin a wait."""
        self._task = task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait with a time limit")
        self._cancelled = task.cancelling()
        self.alive()
        if self._timer is None:
            self._set(self._due())

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End a wait."""
        task, self._task = self._task, None
        expired = self._expired and kind is asyncio.CancelledError
        if expired and task is not None and task.uncancel() <= self._cancelled:
            raise TimeoutError from None

    @contextmanager
    def hearing(self, provider: str = "") -> Iterator[None]:
        """Take every byte of the responses to requests within this block as a sign of life.

        That needs transports that are listened to, see `listen_to`. What may block goes into the
        threads of the provider, see `give_threads_to`.
        """
        hears, asks = _alive.set(self.alive), _provider.set(provider)
        try:
            yield
        finally:
            _provider.reset(asks)
            _alive.reset(hears)

    def alive(self) -> None:
        """Begin the wait under way anew: there was a sign of life that is not waited for."""
        self._heard = self._loop.time()

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> float:
        return min(self._end, self._heard + self._seconds)

    def _set(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, at: float) -> None:
        self._timer = None
        if self._task is None:  # nobody waits now; the next wait sets a timer
            return
        now, due = self._loop.time(), self._due()
        if now - at > _HELD_UP:  # then the loop did not listen: it may have to hear first
            due = max(due, now + _HELD_UP)
        if now < due:
            self._set(due)
        else:
            self._expired = True
            self._task.cancel()


class _Pieces:
    """The pieces of a body; who asks for the next has heard the one before."""

    def __init__(self, pieces: AsyncIterator[bytes], alive: Alive) -> None:
        self._next = pieces.__anext__
        self._alive = alive

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        self._alive()
        return self._next()


def listen_to(*transports: Any) -> None:
    """Hear the bytes that classes of transports (of httpx, or shaped like them) receive.

    Calls that nobody watches are not changed. What is listened to already stays as it is.
    """
    import httpx

    class Heard(httpx.AsyncByteStream):
        """The body of a response, each piece of which is a sign of life."""

        def __init__(self, body: Any, alive: Alive) -> None:
            self._body = body
            self._alive = alive

        def __aiter__(self) -> AsyncIterator[bytes]:
            # An object of its own lets go of the connection together with whoever reads it; this
            # one lives on in a circle of references.
            return _Pieces(aiter(self._body), self._alive)

        async def aclose(self) -> None:
            await self._body.aclose()

    def heard(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(handle)
        async def handled(transport: Any, request: Any) -> Any:
            response = await handle(transport, request)
            alive = _alive.get()
            if alive is not None:
                alive()
                response.stream = Heard(response.stream, alive)
            return response

        setattr(handled, _HEARD, True)
        return handled

    for transport in transports:
        if not hasattr(transport.handle_async_request, _HEARD):
            transport.handle_async_request = heard(transport.handle_async_request)


@lru_cache(_MOST_PROVIDERS)
def _threads_of(provider: str) -> AsideThreads:
    return AsideThreads(_THREADS, "mail-models")


async def aside(work: Callable[[], T], provider: str = "") -> T:
    """Do what blocks in threads of a provider, by default of the call under way, and no other's."""
    future = _threads_of(provider or _provider.get()).submit(partial(copy_context().run, work))
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(_drop)
        raise


def _drop(future: "Future[Any]") -> None:
    """Close a coroutine that nobody waits for any more."""
    if not future.cancelled() and future.exception() is None:
        made = future.result()
        if asyncio.iscoroutine(made):
            made.close()


async def _at_once(work: Callable[[], T]) -> T:
    return work()


class _Instead:
    """Something with a few names of its own; all others are those of what it stands for."""

    def __init__(self, original: Any, **own: Any) -> None:
        self._original = original
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def give_threads_to(*modules: Any) -> None:
    """Let modules that do blocking work in the event loop's threads do it in those of a provider.

    Some providers are asked for credentials before a call: one that does not answer would occupy
    the threads in which everybody's files are read and names are resolved. What waits for nobody
    (``AT_ONCE``) needs no thread: to hand it over takes longer than to do it.

    Args:
        modules: They import `asyncio` and take the loop from its ``get_event_loop``.
    """

    def run_in_executor(executor: Any, work: Callable[..., T], *given: Any) -> Awaitable[T]:
        provider = _provider.get()
        if executor is not None or not provider:  # not one of our calls
            return asyncio.get_running_loop().run_in_executor(executor, work, *given)
        do = _at_once if provider == AT_ONCE else aside
        return do(partial(work, *given))

    def get_event_loop() -> Any:
        return _Instead(asyncio.get_running_loop(), run_in_executor=run_in_executor)

    for module in modules:
        module.asyncio = _Instead(asyncio, get_event_loop=get_event_loop)
