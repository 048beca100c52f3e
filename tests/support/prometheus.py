"""Debian's Prometheus, set up as ``deploy/grafana/`` has it."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from scripts.ports import free_port
from tests.support.debian import install

__all__ = ["GRAFANA", "asked", "has_data", "needed", "prometheus", "queries"]

GRAFANA: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
_SECONDS: Final = 60


def needed(name: str) -> str:
    """Return the path of a program of the package, which is installed if it is missing."""
    if shutil.which(name) is None and (why := install("prometheus", lambda: shutil.which(name))):
        raise RuntimeError(f"{name} is missing (Debian: apt-get install prometheus): {why}")
    return str(shutil.which(name))


@contextmanager
def prometheus(folder: Path, *servers: str, token: str) -> Iterator[str]:
    """Start it in a folder, to scrape each ``host:port`` five times a second; yield its URL.

    What differs from the shipped file is the interval and the addresses of the servers.
    """
    port = free_port()
    text = (GRAFANA / "prometheus.yml").read_text()
    text = text.replace('["127.0.0.1:8000"]', json.dumps(servers))
    (folder / "prometheus.yml").write_text(text.replace("interval: 15s", "interval: 200ms"))
    shutil.copy(GRAFANA / "alerts.yml", folder)
    (folder / "mail-metrics-token").write_text(token)
    command = [
        needed("prometheus"),
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        _wait_for(f"http://127.0.0.1:{port}", folder / "output")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _wait_for(url: str, output: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/-/ready").status_code == httpx.codes.OK:
                return
        time.sleep(0.05)
    raise AssertionError(f"Prometheus is not ready: {output.read_text()[-2000:]}")


def queries() -> list[str]:
    """Return the queries of the dashboard."""
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


async def asked(http: httpx.AsyncClient, path: str, **query: str) -> Any:
    """Return what Prometheus answers."""
    answer = await http.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()["data"]


async def has_data(http: httpx.AsyncClient, query: str) -> bool:
    """Tell whether a query has a result, without an error; it may not be there yet."""
    text = query.replace("$__rate_interval", "30s").replace("$job", "mail")
    found = await asked(http, "query", query=text)
    return any(each["value"][1] != "NaN" for each in found["result"])
