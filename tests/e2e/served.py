"""The processes of a test: ``mail server`` with our swarm, and a kill point if asked; a provider.

By hand: ``python -m tests.e2e.served '{"folder": "/tmp/place", "port": 8123}'``.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mail.config.server import (
    FilesConfig,
    LimitsConfig,
    ServerConfig,
    SettingsConfig,
    SwarmConfig,
    TeamsConfig,
)
from mail.db.commit import Commit, TurnCommit
from mail.db.urls import open_store
from mail.logs.setup import init_logger
from mail.net import sse
from mail.server.run import run_server
from mail.testing import KillingStore, KillPoint
from tests.e2e.desk_agents import make_swarm
from tests.e2e.swarm import SWARM, make_template
from tests.support.provider import __main__ as provider

if TYPE_CHECKING:
    from mail.db.store import Store

NO_LIMITS = LimitsConfig(max_requests=0, max_running_tasks=0, max_streams=0)


def _accepts(post: Commit, who: str) -> bool:
    return not isinstance(post, TurnCommit) and post.new


def _journals_reply(post: Commit, who: str) -> bool:
    return isinstance(post, TurnCommit) and any(
        row.key == "reply" and f"note_{who}" in row.payload for row in post.journal
    )


def _starts_note(post: Commit, who: str) -> bool:
    started = isinstance(post, TurnCommit) and any(r.state == "started" for r in post.journal)
    return started and any(f"note_{who}" in event.description for event in post.events)


def _ends_turn(post: Commit, who: str) -> bool:
    done = isinstance(post, TurnCommit) and post.done
    return done and any(row.agent == who for row in post.histories)


def _resumes(post: Commit, who: str) -> bool:
    return not isinstance(post, TurnCommit) and any(
        call.agent == who and call.answer is not None for call in post.calls
    )


def _waits(post: Commit, who: str) -> bool:
    return isinstance(post, TurnCommit) and any(
        call.agent == who and call.is_wait and call.answer is None for call in post.calls
    )


def _ends_run(post: Commit, who: str) -> bool:
    return isinstance(post, TurnCommit) and post.response is not None


COMMITS: Mapping[str, Callable[[Commit, str], bool]] = {
    "accept": _accepts,
    "reply": _journals_reply,
    "action": _starts_note,
    "turn": _ends_turn,
    "resume": _resumes,
    "wait": _waits,
    "end": _ends_run,
}
"""The commits around which the process can die."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """``kill`` is "before" or "after", one of `COMMITS` and, where it matters, an agent.

    ``participants`` are names of mailboxes. With ``desk`` the swarm is that of the simulation of
    the mail desk, and each of them may store so many bytes. ``template`` is ``module:function``
    of another swarm, which takes the folder. ``running`` is how many tasks of a caller may run at
    once; 0 for any number.
    """

    folder: str
    port: int
    store: str = ""
    kill: str = ""
    limit: int | None = None
    pause: float = 0.0
    use_proxy: bool = False
    debug: bool = False
    send_seconds: float = 30.0
    participants: tuple[str, ...] = ()
    desk: int = 0
    template: str = ""
    running: int = 0
    environment: dict[str, str] = field(default_factory=dict)


def _point(kill: str) -> KillPoint:
    when, what, *rest = kill.split()
    if when not in ("before", "after"):
        raise ValueError(f"a kill is before or after a commit, not {when!r}")
    matches, who = COMMITS[what], "".join(rest)
    return KillPoint(
        "before" if when == "before" else "after",
        lambda post: matches(post, who),
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )


def serve(options: Options) -> None:
    """Serve until the process is told to stop, or dies."""
    folder = Path(options.folder)
    os.environ.update(options.environment)
    sse.SEND_SECONDS = options.send_seconds  # type: ignore[misc]
    init_logger(log_dir=folder / "logs")
    store: Store = open_store(options.store or f"sqlite:///{folder / 'mail.db'}")
    if options.kill:
        store = KillingStore(store, _point(options.kill))  # type: ignore[assignment]
    config = ServerConfig(
        host="127.0.0.1",
        port=options.port,
        debug=options.debug,
        swarm=SwarmConfig(name=SWARM, registry_file=str(folder / "registry.json")),
        files=FilesConfig(root=str(folder / "mail-files")),
        settings=SettingsConfig(task_message_limit=50, print_llm_streams=True),
        teams=TeamsConfig(enabled=bool(options.desk)),
        limits=NO_LIMITS.model_copy(update={"max_running_tasks": options.running}),
    )
    if options.template:
        module, _, name = options.template.partition(":")
        swarm = getattr(importlib.import_module(module), name)(folder)
        run_server(config, template=swarm, store=store)
        return
    if options.desk:
        limits = {"max_stored_bytes": options.desk, "body_rate": 0.0}
        config = config.model_copy(update={"limits": config.limits.model_copy(update=limits)})
        swarm = make_swarm(SWARM, folder, options.participants)
        run_server(config, template=swarm, store=store)
        return
    template = make_template(
        folder,
        limit=options.limit,
        pause=options.pause,
        use_proxy=options.use_proxy,
        participants=options.participants,
    )
    run_server(config, template=template, store=store)


def serve_logged(options: Options) -> None:
    """Serve with everything that the process writes in ``server.log``."""
    _write_to(Path(options.folder, "server.log"))
    serve(options)


def provide(folder: str, arguments: Sequence[str]) -> None:
    """Be the provider whose models wait at the gates of a folder; it writes ``provider.log``."""
    _write_to(Path(folder, "provider.log"))
    os.environ["E2E_GATES"] = str(Path(folder, "gates"))
    provider.main(arguments)


def _write_to(file: Path) -> None:
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)


if __name__ == "__main__":
    serve(Options(**json.loads(sys.argv[1])))
