"""A server to shoot at: ``python -m tests.fuzz.server STORE_URL [--shipped-limits]``.

It is what ``mail server --debug`` runs, over a scripted swarm and with four known callers. It
writes its log, with the line that names its address, on stderr.
"""

import argparse
import asyncio
import logging
import sys

import httpx

from mail.config.server import LimitsConfig
from mail.db.urls import open_store
from mail.egress.rules import EgressPolicy
from mail.net.peers import PeerAccess
from mail.server.run import run_server
from mail.services import approvals
from tests.server.kit import know
from tests.support.till import settings, till


def no_packets() -> PeerAccess:
    """Return a way to other servers that ends here: every name leads to one that is any swarm."""
    answer = {"name": "mail", "swarm": {}, "swarms": [{"name": "found", "base_url": "http://x.y"}]}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))
    return PeerAccess(EgressPolicy(), "", lambda host, port: ["93.184.215.14"], transport)


def main() -> None:
    """Serve until told to stop."""
    PeerAccess.of_server = classmethod(lambda cls, allow_private, keys=None: no_packets())  # type: ignore[method-assign, assignment]
    approvals.PING_INTERVAL = 0.0  # type: ignore[misc, attr-defined]  # a stream begins with it
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--shipped-limits", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(know(arguments.store))
    config = settings(
        debug=True, max_running_tasks=0, max_streams=0, max_requests=0, anonymous_rate=0.0
    )
    if arguments.shipped_limits:
        config = config.model_copy(update={"limits": LimitsConfig(shutdown_grace=0.5)})
    run_server(config, template=till(), store=open_store(arguments.store))


if __name__ == "__main__":
    main()
