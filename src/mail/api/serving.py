"""A template as a server: ``MAILSwarmTemplate.start_server``."""

import asyncio
import logging
import threading
import webbrowser
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from mail.api.ui import UIProcess, check_port, exit_on_term
from mail.errors import MAILError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mail.api.template import MAILSwarmTemplate

__all__ = ["ServerOptions", "serve_template"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server is started with; see `mail.api.MAILSwarmTemplate.start_server`."""

    port: int
    host: str
    launch_ui: bool
    ui_port: int
    ui_path: str | PathLike[str] | None
    open_browser: bool
    server_url: str | None


def serve_template(template: "MAILSwarmTemplate", options: ServerOptions) -> None:
    """Serve a template until the process is told to stop, with a UI beside it if there is one.

    Raises:
        MissingUI, PortInUse, UIFailed: see `mail.api.ui`.
        MAILError: an event loop runs in this thread.
        ConfigError, StoreError, SystemExit: see `mail.server.run.run_server`.
    """
    from mail.config.server import ServerConfig, SwarmConfig, base_url, resolve_log_format

    _refuse_inside_a_loop()
    config = ServerConfig(
        host=options.host, port=options.port, reload=False, swarm=SwarmConfig(name=template.name)
    )
    _set_up_logging(resolve_log_format(config))
    check_port(options.host, options.port, "the server")
    with ExitStack() as stack:
        kill_ui: Callable[[], None] | None = None
        if options.launch_ui and options.ui_path is None:
            logger.info("no user interface is started; name one of your own with ui_path")
        elif options.launch_ui and options.ui_path is not None:
            ui = UIProcess(options.ui_path, options.ui_port, options.server_url or base_url(config))
            ui.check()
            stack.enter_context(exit_on_term())
            stack.enter_context(ui.running())
            kill_ui = ui.kill
            if options.open_browser:
                _open_browser(f"http://localhost:{options.ui_port}")
        from mail.server.run import run_server

        run_server(config, template=template, last_act=kill_ui)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise MAILError("start_server blocks; call it where no event loop runs, not from async code")


def _set_up_logging(log_format: str) -> None:
    """Log as `mail server` does, unless the program has a logging of its own."""
    if not logging.getLogger("mail").hasHandlers():
        from mail.logs.setup import init_logger

        init_logger(log_format=log_format)


def _open_browser(url: str) -> None:
    """Open a page; in a thread, because text browsers do not return."""
    threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()
