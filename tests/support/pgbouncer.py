"""PgBouncer in front of a cluster, in transaction mode: servers change between transactions."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scripts.ports import free_port
from tests.support.debian import install
from tests.support.postgres import PASSWORD, Cluster, account_of_servers

_SECONDS: Final = 20.0
_SETTINGS: Final = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
"""


@contextmanager
def pooled(cluster: Cluster) -> Iterator[str]:
    """Start one; yield the URL of an empty database behind it."""
    if _binary() is None and (why := install("pgbouncer", _binary)):
        raise RuntimeError(f"pgbouncer is missing (Debian: apt-get install pgbouncer): {why}")
    database = cluster.dsn().rpartition("/")[2]
    port, account = free_port(), account_of_servers()
    folder = Path(tempfile.mkdtemp(prefix="mail-pgbouncer-"))
    settings = folder / "pgbouncer.ini"
    text = _SETTINGS.format(server=f"{cluster.port} user=mail password={PASSWORD}", port=port)
    settings.write_text(text)
    for path in (folder, settings):
        os.chown(path, account.get("user", -1), account.get("group", -1))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(_binary()), str(settings)], stdout=log, stderr=log, **account
        )
    try:
        _wait_for(port, folder / "log")
        yield f"postgresql://mail@127.0.0.1:{port}/{database}?pgbouncer=true"
    finally:
        process.terminate()
        process.wait(_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _binary() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def _wait_for(port: int, log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with socket.socket() as plain:
            if plain.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"pgbouncer does not listen: {log.read_text()[-2000:]}")
