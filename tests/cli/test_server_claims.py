"""``mail server`` on PostgreSQL: one per swarm, and gone when another one has the swarm."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from mail.db.postgres.swarm_lock import claim_key
from tests.cli.test_server_process import serving
from tests.support.postgres import PASSWORD, Cluster

pytestmark = pytest.mark.e2e

TAKE_OVER = """
SELECT pg_terminate_backend(activity.pid), pg_advisory_lock($1)
FROM pg_locks JOIN pg_stat_activity AS activity USING (pid)
WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1
"""


async def test_one_server_per_swarm_which_stops_when_it_has_lost_it(
    tmp_path: Path, cluster: Cluster
) -> None:
    url = cluster.schema()
    async with serving(tmp_path, flags=("--store", url)) as place:
        second = await asyncio.to_thread(place.run, "server", "--port", "0", "--store", url)
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1].startswith("mail: swarm 'example-no-proxy' is served")
        assert f"(pid {place.process.pid} on" in second.stderr  # type: ignore[union-attr]
        listed = await asyncio.to_thread(place.run, "token", "list", "--store", url)
        assert listed.returncode == 0, listed.stderr
        usurper = await asyncpg.connect(url)
        try:
            key = claim_key(url.rpartition("=")[2], "example-no-proxy")
            await usurper.execute("SET statement_timeout = '20s'")
            await usurper.fetch(TAKE_OVER, key)
            async with asyncio.timeout(30):
                assert await place.process.wait() == 1  # type: ignore[union-attr]
        finally:
            await usurper.close()
        assert "another server took over the swarm" in place.log
        assert "draining" in place.log
        assert PASSWORD not in place.log + second.stderr
        assert "Traceback" not in place.log
