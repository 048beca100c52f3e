"""The entries of a registry, in memory and where it is kept: a file, or a database."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from mail.config.env import setting
from mail.errors import ConfigError, StoreConflict, StoreError
from mail.net.endpoints import (
    TOKEN_PREFIX,
    is_reference,
    is_token_reference,
    missing_token,
    token_reference,
    token_variable,
)
from mail.net.registry_file import (
    BrokenRegistry,
    RegistryContent,
    RegistryFile,
    RegistryTable,
)
from mail.net.types import ProposedSwarm, SwarmEndpoint

_TRIES: Final = 10

_log = logging.getLogger("mail.registry")

Endpoints = dict[str, SwarmEndpoint]
Change = Callable[[Endpoints, dict[str, ProposedSwarm]], None]
"""Changes copies of the entries and proposals in place; raises when it must not be done.

It is called again, with other copies, when another process was faster.
"""


class SwarmEntries:
    """The entries of a registry. Methods may be called from any thread.

    Looking up waits for nothing but a `stat` of the file; what changes the file blocks.
    """

    local_base_url: str
    local_swarm_description: str
    local_swarm_keywords: list[str]
    local_swarm_public: bool

    def __init__(
        self, local_swarm_name: str, persistence_file: str, storage: RegistryTable | None
    ) -> None:
        self.local_swarm_name = local_swarm_name
        self.persistence_file = persistence_file
        self.endpoints: Endpoints = {}
        self.proposed: dict[str, ProposedSwarm] = {}
        self._kept: RegistryFile | RegistryTable = storage or RegistryFile(persistence_file)
        self._filed: frozenset[str] = frozenset()
        self._unread: dict[str, Any] = {}
        self._tokens: dict[str, tuple[str, str]] = {}  # the address it is for, and the token
        self._told: frozenset[str] = frozenset()
        self._guard = threading.RLock()
        try:
            self._kept.make_folder()
        except OSError as error:
            _log.warning(
                "the folder of the registry %s cannot be created (%s): only volatile swarms can be "
                "registered",
                self._kept.place,
                error.strerror,
            )

    # --- looking up -----------------------------------------------------------------------------

    def get_swarm_endpoint(self, swarm_name: str) -> SwarmEndpoint | None:
        """Return the entry of a swarm, or None."""
        self._refresh()
        return self.endpoints.get(swarm_name)

    def get_all_endpoints(self) -> Endpoints:
        """Return all entries by name."""
        self._refresh()
        return dict(self.endpoints)

    def get_public_endpoints(self) -> Endpoints:
        """Return the entries of swarms that want to be listed."""
        return {name: one for name, one in self.get_all_endpoints().items() if one["public"]}

    def get_active_endpoints(self) -> Endpoints:
        """Return the entries of swarms that answered their last health check."""
        return {name: one for name, one in self.get_all_endpoints().items() if one["is_active"]}

    def get_persistent_endpoints(self) -> Endpoints:
        """Return the entries that are kept in the file."""
        return {name: e for name, e in self.get_all_endpoints().items() if not e["volatile"]}

    def get_proposed_swarms(self) -> dict[str, ProposedSwarm]:
        """Return the swarms that wait for approval."""
        self._refresh()
        return dict(self.proposed)

    def _peers(self) -> Endpoints:
        return {n: one for n, one in self.endpoints.items() if n != self.local_swarm_name}

    # --- tokens ---------------------------------------------------------------------------------

    def get_resolved_auth_token(self, swarm_name: str) -> str | None:
        """Return what this server authenticates with at a peer, None when it has nothing.

        For entries that are not volatile the environment variable comes first, then what this
        process was given.
        """
        entry = self.get_swarm_endpoint(swarm_name)
        if entry is None or swarm_name == self.local_swarm_name:
            return None
        ref = entry["auth_token_ref"]
        if ref is not None and not is_reference(ref):
            return ref
        held_for, held = self._tokens.get(swarm_name, (None, None))
        return setting(token_variable(swarm_name)) or (
            held if held_for == entry["base_url"] else None
        )

    def _get_auth_token_ref(self, swarm_name: str, auth_token: str | None) -> str | None:
        if not auth_token:
            return None
        return auth_token if is_reference(auth_token) else token_reference(swarm_name)

    def _resolve_auth_token_ref(self, auth_token_ref: str | None) -> str | None:
        if not auth_token_ref:
            return None
        if not is_reference(auth_token_ref):
            return auth_token_ref
        if not is_token_reference(auth_token_ref):
            _log.warning("a token reference may only name %s_<NAME>", TOKEN_PREFIX)
            return None
        variable = auth_token_ref[2:-1]
        value = setting(variable)
        if value is None:
            _log.warning("the environment variable %s is not set", variable)
        return value

    def migrate_auth_tokens_to_env_refs(self, env_var_prefix: str = TOKEN_PREFIX) -> list[str]:
        """Replace the tokens of peers by references, also in the file.

        The tokens stay in the memory of this process. Set the variables before the next start.

        Args:
            env_var_prefix: The beginning of the variables' names.

        Returns:
            The names of the variables to set.

        Raises:
            ConfigError: the prefix is another one than the only one that references may have.
            StoreError: the file cannot be written. Nothing was changed.
        """
        if env_var_prefix != TOKEN_PREFIX:
            raise ConfigError(f"references may only name variables that begin with {TOKEN_PREFIX}")
        with self._guard:
            raw = {
                name: ref
                for name, entry in self._peers().items()
                if (ref := entry["auth_token_ref"]) and not is_reference(ref)
            }

            def change(endpoints: Endpoints, proposed: dict[str, ProposedSwarm]) -> None:
                for name in raw.keys() & endpoints.keys():
                    endpoints[name] = {**endpoints[name], "auth_token_ref": token_reference(name)}

            if raw:
                self._commit(change)
                self._tokens |= {n: (self.endpoints[n]["base_url"], raw[n]) for n in raw}
        return sorted(map(token_variable, raw))

    def validate_environment_variables(self) -> dict[str, bool]:
        """Return the variables that entries refer to, and whether each is set."""
        refs = (entry["auth_token_ref"] or "" for entry in self._peers().values())
        names = sorted({ref[2:-1] for ref in refs if is_reference(ref)})
        return {name: setting(name) is not None for name in names}

    def warn_of_missing_tokens(self) -> None:
        """Say in the log, of each peer that there is no token for, how it gets one."""
        for name in self._peers():
            self._warn_of_missing_token(name)

    def _warn_of_missing_token(self, name: str) -> None:
        if self.get_resolved_auth_token(name) is None:
            _log.warning("%s", missing_token(name, self.local_swarm_name))

    # --- the file -------------------------------------------------------------------------------

    def save_persistent_endpoints(self) -> None:
        """Write the file, with what other processes have changed in it.

        Raises:
            StoreError: it cannot be written.
        """
        self._commit(lambda endpoints, proposed: None)

    def load_persistent_endpoints(self) -> None:
        """Read the file. A damaged one is renamed and reported, and the registry begins empty."""
        with self._guard:
            try:
                try:
                    content = self._kept.read()
                except BrokenRegistry:
                    with self._kept.locked():
                        content = self._read_or_set_aside()
                self._adopt(content)
                self._warn_of_owner(content)
            except StoreError as error:
                _log.error("%s", error)

    def _warn_of_owner(self, content: RegistryContent) -> None:
        owner = content.about.get("local_swarm_name", self.local_swarm_name)
        if owner != self.local_swarm_name:
            _log.warning(
                "the registry %s was written for the swarm %r; use another file if it is still "
                "that one's",
                self._kept.place,
                owner,
            )

    def cleanup_volatile_endpoints(self) -> None:
        """Forget the volatile entries and write the others to the file.

        Raises:
            StoreError: it cannot be written.
        """
        with self._guard:
            self.endpoints = {
                name: entry
                for name, entry in self.endpoints.items()
                if name == self.local_swarm_name or not entry["volatile"]
            }
            if self._kept.is_written_at_end(self._content(self._peers(), self.proposed)):
                self.save_persistent_endpoints()

    def to_dict(self) -> dict[str, Any]:
        """Return all entries in the form of the file, volatile ones too, and no token."""
        return self._content(self.endpoints, self.proposed).to_json()

    def _refresh(self) -> None:
        """Take over what another process has written; without waiting for anything."""
        if not self._guard.acquire(blocking=False):
            return
        try:
            content = self._kept.news()
            if content is not None:
                self._adopt(content)
        except StoreError as error:
            _log.error("%s; what is known stays in use", error)
        finally:
            self._guard.release()

    def _apply(self, change: Change) -> None:
        """Change what is only in memory."""
        with self._guard:
            endpoints = dict(self.endpoints)
            change(endpoints, {**self.proposed})
            self.endpoints = endpoints

    def _commit(self, change: Change) -> None:
        """Change entries and the file together, or neither."""
        try:
            with self._guard, self._kept.locked():
                for left in reversed(range(_TRIES)):
                    try:
                        self._commit_once(change)
                        break
                    except StoreConflict:  # what another process has written is read first
                        if not left:
                            raise
        except StoreError as error:
            _log.error("%s; nothing was changed", error)
            raise

    def _commit_once(self, change: Change) -> None:
        self._adopt(self._read_or_set_aside())
        endpoints, proposed = dict(self.endpoints), dict(self.proposed)
        change(endpoints, proposed)
        content = self._content(endpoints, proposed)
        content.endpoints = {n: e for n, e in endpoints.items() if not e["volatile"]}
        self._kept.write(content)
        self.endpoints, self.proposed = endpoints, proposed
        self._filed = frozenset(content.endpoints)

    def _read_or_set_aside(self) -> RegistryContent:
        try:
            return self._kept.read()
        except BrokenRegistry as error:
            aside = self._kept.set_aside()
            _log.error("%s; it is kept as %s", error, aside)
            known = {n: self.endpoints[n] for n in self._filed & self.endpoints.keys()}
            return RegistryContent(endpoints=known, proposed=self.proposed)

    def _content(self, endpoints: Endpoints, proposed: dict[str, ProposedSwarm]) -> RegistryContent:
        about = {
            "local_swarm_name": self.local_swarm_name,
            "local_base_url": self.local_base_url,
            "local_swarm_description": self.local_swarm_description,
            "local_swarm_keywords": self.local_swarm_keywords,
            "local_swarm_public": self.local_swarm_public,
        }
        return RegistryContent(about, dict(endpoints), proposed, self._unread)

    def _adopt(self, content: RegistryContent) -> None:
        """Let the entries of the file be those in it; others stay."""
        for problem in content.problems:
            if problem not in self._told:
                _log.error("registry %s: %s; it is not used", self._kept.place, problem)
        self._told = frozenset(content.problems)
        # Whose file it is, is not its peer.
        own = {self.local_swarm_name, content.about.get("local_swarm_name")}
        read = {n: self._met(e) for n, e in content.endpoints.items() if n not in own}
        stay = {
            name: entry
            for name, entry in self.endpoints.items()
            if entry["volatile"] or name == self.local_swarm_name or name not in self._filed
        }
        for name in self._filed - read.keys() - stay.keys():
            self._tokens.pop(name, None)
        local = {n: e for n, e in stay.items() if n == self.local_swarm_name}
        self.endpoints = local | read | stay
        self.proposed, self._unread = content.proposed, content.unread
        self._filed = frozenset(read)

    def _met(self, entry: SwarmEndpoint) -> SwarmEndpoint:
        """Return an entry of the file with what this process knows better."""
        name, ref = entry["swarm_name"], entry["auth_token_ref"]
        known = self.endpoints.get(name)
        if ref is not None and not is_reference(ref):
            _log.warning(
                "the registry %s holds the token of swarm %r: set %s, and call "
                "migrate_auth_tokens_to_env_refs()",
                self._kept.place,
                name,
                token_variable(name),
            )
            self._tokens[name] = (entry["base_url"], ref)
        entry["volatile"] = False
        if known is not None and known["base_url"] == entry["base_url"]:
            for key in ("last_seen", "is_active", "latency"):
                entry[key] = known[key]
        return entry
