"""The composition root: builds the server's parts, wires them, and opens and closes them."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import lru_cache, partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from mail.auth.builtin import BuiltinAuth, build_auth
from mail.auth.callers import AuthBackend
from mail.config.env import current, setting
from mail.config.server import (
    ServerConfig,
    answers_to,
    checks_host,
    resolve_store_url,
    serves_example,
    store_url_place,
)
from mail.db.store import Store
from mail.db.urls import open_store
from mail.errors import ConfigError
from mail.llm.profiles import configured_models
from mail.llm.resolve import EXAMPLE_MODEL, is_example_script
from mail.server.errors import as_it_is, install_error_handlers
from mail.server.letters import Reminder
from mail.server.middleware import Cors, EdgeMiddleware
from mail.server.nodes import cancelled, make_relayed_calls, on_duty
from mail.server.openapi import OpenAPIDocument
from mail.server.retention import Retention
from mail.server.routes import (
    admin,
    approvals,
    desk,
    files,
    interswarm,
    mcp,
    memories,
    messages,
    pages,
    responses,
    server,
    swarms,
    tasks,
    teams,
    tokens,
)
from mail.server.routes.responses import shaped_for_path
from mail.server.routing import MAILRoute
from mail.server.state import ServerState
from mail.stdlib.settings import check_settings, stray_files
from mail.traces import export

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate

DESCRIBED: Final = (
    messages.router,
    tasks.router,
    admin.router,
    approvals.router,
    desk.router,
    teams.router,
    files.router,
    memories.router,
    server.router,
    swarms.router,
    interswarm.router,
    interswarm.outbox,
    approvals.webhook,
    responses.router,
    tokens.router,
    tokens.authority,
)
"""The routers of the OpenAPI document. One for another subject has its place here."""

DOCUMENT: Final = OpenAPIDocument(DESCRIBED)

_log = logging.getLogger("mail.server")


_KEY_HOURS: Final = 168.0
"""The age of an `Idempotency-Key`."""
_SUGGESTED: Final = {
    "OPENAI_API_KEY": "openai/gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic/claude-sonnet-4-5",
}
"""A provider's key to a model that goes with it."""


_TRACED: Final = ("/message", "/responses", "/v1/responses", "/interswarm/message", "/mcp")
"""Paths of requests that begin runs: FastAPI makes spans of these, and none of polls."""
_NO_PAGES: Final[dict[str, Any]] = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
"""Ours are served by routes of their own."""


def create_app(
    config: ServerConfig | None = None,
    *,
    template: "MAILSwarmTemplate | None" = None,
    store: Store | None = None,
    auth: AuthBackend | None = None,
) -> FastAPI:
    """Build the server as an ASGI application. Nothing is opened before its lifespan starts.

    The lifespan loads the swarm, too, and raises `ConfigError` when it cannot be built.

    Args:
        config: Settings; those of ``mail.toml`` when absent.
        template: The swarm; the one that the settings name when absent.
        store: The store of all state; one that is passed in is opened, but not closed.
        auth: The authority for tokens; when absent, the external service or the built-in one, as
            the environment says.

    Raises:
        ConfigError: a setting or the environment is wrong.
    """
    config = config or ServerConfig()
    check_settings()
    configured_models()
    name = config.swarm.name if template is None else template.name
    owned = None if store is not None else _make_store(config, name)
    used = store or owned
    assert used is not None  # noqa: S101 - one of the two is there
    auth = auth or build_auth(current(), used)
    state = ServerState(config, used, auth, DOCUMENT, template)
    app = FastAPI(
        title="MAIL",
        lifespan=_lifespan(owned, template is None and serves_example(config.swarm)),
        redirect_slashes=False,
        telemetry={
            "logs": False,
            "metrics": False,
            "operation_spans": False,
            "exclude": lambda scope: (
                scope.get("path") not in _TRACED or scope.get("method") != "POST"
            ),
        },
        **_NO_PAGES,
    )
    app.router.route_class = MAILRoute
    app.state.mail, app.state.auth, app.state.debug = state, auth, config.debug
    app.state.mcp = mcp.McpDoor(app)
    _add_routes(app, state)
    return app


def _add_routes(app: FastAPI, state: ServerState) -> None:
    shape = shaped_for_path if state.config.openai.enabled else as_it_is
    files_config = state.config.files
    app.add_middleware(
        EdgeMiddleware,
        limits=state.config.limits,
        cors=Cors(state.config.cors_origins) if state.config.cors_origins else None,
        answers_to=lru_cache(partial(answers_to, state.config))
        if checks_host(state.config)
        else None,
        draining=partial(getattr, state, "draining"),
        shape=shape,
        bodies={
            ("POST", "/files"): (
                files_config.max_bytes,
                files_config.upload_timeout,
                "raise [server.files] max_bytes",
                "raise [server.files] upload_timeout",
            )
        },
    )
    install_error_handlers(app, shape)
    app.openapi = lambda: state.document.content  # type: ignore[method-assign]  # for all servers
    routers = [*DESCRIBED, mcp.router]
    if not isinstance(state.auth, BuiltinAuth):
        routers.remove(tokens.authority)
    if state.config.console:
        routers.append(pages.console)
    if state.config.docs:
        routers.append(pages.router)
    if not state.config.openai.enabled:
        routers.remove(responses.router)
    if state.config.debug:
        routers.append(responses.debug)
    for router in routers:
        # Not `include_router`: routes of an included router are looked up twice per request.
        app.router.routes.extend(router.routes)


def _make_store(config: ServerConfig, swarm: str) -> Store:
    url = resolve_store_url(config, current())
    try:
        return open_store(url, durability=config.store.durability, swarm=swarm)
    except ConfigError as error:
        raise ConfigError(f"{store_url_place(config, current())}: {error}") from error


def _lifespan(
    owned: Store | None, example: bool
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        state: ServerState = app.state.mail
        async with AsyncExitStack() as stack:
            await state.prepare()
            end = export(state.template.name, state.store.driver.node)
            if end is not None:
                stack.push_async_callback(end)
            await state.store.open()
            if example:
                swarm = state.config.swarm
                _log.info(
                    "no %s here: serving the packaged example, '%s'", swarm.source, swarm.name
                )
            _tell_model(state.template)
            strays = await asyncio.to_thread(stray_files, state.template)
            if strays is not None:
                _log.warning("%s", strays)
            if owned is not None:
                stack.push_async_callback(owned.close)
            stack.push_async_callback(state.contents.close)
            await state.open_files()
            stack.push_async_callback(state.auth.close)
            stack.push_async_callback(_close_models)
            stack.push_async_callback(app.state.mcp.close)
            await state.open_registry()
            stack.push_async_callback(state.close_registry)
            await stack.enter_async_context(_working(state))
            yield

    return lifespan


@asynccontextmanager
async def _working(state: ServerState) -> AsyncIterator[None]:
    """Keep instances, and take up what an earlier process left unfinished."""
    await _hint_at_tokens(state)
    state.pool.start()
    state.begin_recovery()
    await state.federation.serve()
    await state.announcements.open()
    duties: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "deletion by age": _retention(state).run,
        "unanswered letters": _reminder(state).run,
        "memories": lambda: state.learning.run(),
        "unanswered approvals": partial(approvals.end_in_time_of, state),
    }
    swarm = state.announcements.swarm

    def one_does(duty: str, run: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        return asyncio.create_task(on_duty(state.store, f"{swarm}: {duty}", run), name=duty)

    loops = [
        *(one_does(*duty) for duty in duties.items()),
        asyncio.create_task(make_relayed_calls(state.store, state.pool), name="relayed calls"),
        asyncio.create_task(state.announcements.run(), name="announcements"),
    ]
    telling = one_does("webhook", state.webhook.run)
    try:
        if state.host_drains:
            yield
        else:
            with call_on_stop(state.begin_drain):
                yield
    finally:
        await state.end_recovery()
        await cancelled(*loops)
        await state.begin_drain()
        await cancelled(telling)  # what the last tasks have told is sent if there is time


def _tell_model(template: "MAILSwarmTemplate") -> None:
    """Say who plays the agents of a shipped example, where a model could or does."""
    llms = [agent.agent_params.get("llm") for agent in template.agents]
    model, key = setting(EXAMPLE_MODEL), next(filter(setting, _SUGGESTED), None)
    if model and model in llms:
        _log.info("%s: the agents of '%s' ask %s", EXAMPLE_MODEL, template.name, model)
    elif key and any(map(is_example_script, llms)):
        _log.info(
            "%s is set, and not used: the agents of '%s' follow scripts, which cost nothing; start "
            "with %s=%s to let that model play them",
            *(key, template.name, EXAMPLE_MODEL, _SUGGESTED[key]),
        )


def _retention(state: ServerState) -> Retention:
    return Retention(
        store=state.store,
        swarm=lambda: str(state.template.name),
        key_hours=_KEY_HOURS,
        task_days=state.config.retention.tasks_days,
        letter_days=state.config.retention.letters_days,
        is_busy=state.pool.is_busy,
        files=lambda: state.files,
    )


def _reminder(state: ServerState) -> Reminder:
    return Reminder(
        store=state.store,
        pool=state.pool,
        swarm=lambda: state.template,
        clock=state.clock,
        answer_within=state.config.federation.answer_within,
    )


async def _close_models() -> None:
    """Close the connections to providers, if any agent has asked one."""
    if "litellm" in sys.modules:
        from mail.llm.litellm_model import close_clients

        await close_clients()


async def _hint_at_tokens(state: ServerState) -> None:
    if not isinstance(state.auth, BuiltinAuth) or await state.store.list_tokens():
        return
    if state.store.durable:
        _log.warning("there are no tokens yet; create one with 'mail token create'")
    else:
        _log.warning(
            "there are no tokens, and 'mail token' cannot create any in a memory store; "
            "use --store sqlite:///mail.db, or an external token service"
        )


STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def call_on_stop(begin: Callable[[], object]) -> Iterator[None]:
    """Call ``begin`` in the running event loop when the process is told to stop.

    The host's own handler is called afterwards. Outside the main thread, or where the host has no
    handler to pass the signal on to, nothing is hooked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    hooked: dict[signal.Signals, tuple[Any, Any]] = {}
    for number in STOP_SIGNALS:
        previous = signal.getsignal(number)
        if callable(previous):
            handler = _chain(loop, begin, previous)
            hooked[number] = (handler, previous)
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, (handler, previous) in hooked.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)


def _chain(
    loop: asyncio.AbstractEventLoop, begin: Callable[[], object], previous: Callable[..., Any]
) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        previous(number, frame)

    return handler
