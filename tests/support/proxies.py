"""nginx and Caddy in front of a server, with the files of ``deploy/``."""

import os
import re
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

__all__ = ["NAMES", "behind"]

NAMES: Final = ("nginx", "caddy")
_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
_SECONDS: Final = 20
_NGINX: Final = """
daemon off;
user root;
pid {folder}/pid;
error_log {folder}/log;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/1;
    uwsgi_temp_path {folder}/2;
    scgi_temp_path {folder}/3;
    include {folder}/mail.conf;
}}
"""


@contextmanager
def behind(name: str, server: str, **environment: str) -> Iterator[str]:
    """Start a proxy in front of a server's ``host:port``; yield the proxy's address.

    What differs from the shipped file is the certificate, which there is none of, and the ports.
    """
    if shutil.which(name) is None and (why := install(name, lambda: shutil.which(name))):
        raise RuntimeError(f"{name} is missing (Debian: apt-get install {name}): {why}")
    port = free_port()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command = (_nginx if name == "nginx" else _caddy)(folder, server, port)
        with (folder / "output").open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=os.environ | environment
            )
        try:
            _wait_for(port, folder / "output")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _nginx(folder: Path, server: str, port: int) -> list[str]:
    text = (_DEPLOY / "nginx.conf").read_text()
    text = re.sub(r"\n *ssl_certificate.*", "", text)
    text = text.replace("client_body_timeout 10s", "client_body_timeout 1s")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    (folder / "mail.conf").write_text(text.replace("127.0.0.1:8000", server))
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder))
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")]


def _caddy(folder: Path, server: str, port: int) -> list[str]:
    text = (_DEPLOY / "Caddyfile").read_text().replace("\n{\n", "\n{\n\tadmin off\n", 1)
    text = text.replace("{$MAIL_HOST:mail.example.org}", f"http://:{port}")
    (folder / "Caddyfile").write_text(text.replace("127.0.0.1:8000", server))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _wait_for(port: int, output: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with socket.socket() as plain:
            if plain.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"the proxy does not listen: {output.read_text()[-2000:]}")
