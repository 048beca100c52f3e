"""The registries of other swarms, in a store that several servers may share.

Elsewhere a registry is a file, see `mail.net.registry_file`: an SQLite database has no such table.
"""

from typing import Final

from mail.db.driver import Query, Verb, Verbs, read, write
from mail.db.records import RegistryRow
from mail.errors import StoreConflict

_NEW: Final = """
INSERT INTO swarm_registry (swarm_name, version, content) VALUES ($1, 1, $2)
ON CONFLICT DO NOTHING RETURNING version
"""

_CHANGE: Final = """
UPDATE swarm_registry SET version = version + 1, content = $2, updated_at = now()
WHERE swarm_name = $1 AND version = $3 RETURNING version
"""


class RegistryVerbs(Verbs):
    """Registries of other swarms, by local swarm."""

    @read
    def load_registry(self, swarm: str, known: int = 0) -> Verb[RegistryRow | None]:
        """Return a swarm's registry; None without one, or when its version is still ``known``."""
        text = "SELECT version, content FROM swarm_registry WHERE swarm_name = $1 AND version <> $2"
        rows = yield Query(text, (swarm, known))
        return RegistryRow(*rows[0]) if rows else None

    @write
    def save_registry(self, swarm: str, content: str, version: int) -> Verb[int]:
        """Replace a swarm's registry, and return its new version.

        Args:
            swarm: The local swarm.
            content: Its JSON.
            version: That of the registry that is replaced, 0 if there is none.

        Raises:
            StoreConflict: it has another version by now.
        """
        new = Query(_NEW, (swarm, content))
        rows = yield (Query(_CHANGE, (swarm, content, version)) if version else new)
        if not rows:
            raise StoreConflict(f"the registry of '{swarm}' was changed by another process")
        return int(rows[0][0])
