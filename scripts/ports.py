"""Ports for servers that must be told theirs, which no other process of the machine gets.

Not a script: the others, the tests and the benchmarks import it.
"""

import socket


def free_port() -> int:
    """Reserve a port of 127.0.0.1 for as long as this process lives, and return it.

    A socket stays bound to it, without listening. The kernel then gives the port to nobody who
    asks for any, neither to a server (port 0) nor to an outgoing connection. A server that names
    the port may have it, because both set SO_REUSEADDR, as every server does. Servers that can
    tell which port they got should ask for port 0 instead.
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        port = int(bound.getsockname()[1])
        bound.detach()  # left open on purpose; the end of the process closes it
    return port
