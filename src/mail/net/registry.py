"""`SwarmRegistry`: which other swarms there are, where they are, and whether they answer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mail.config.env import setting
from mail.egress.rules import EgressPolicy, FetchError, NoAnswer
from mail.errors import ConfigError, MAILError, PeerUnreachable, UnknownSwarm
from mail.net.endpoints import (
    SwarmFacts,
    check_base_url,
    check_metadata,
    check_name,
    check_public_key,
    check_token,
    facts_of,
    is_reference,
    make_endpoint,
    proposal_from_json,
    refuse,
    shown_keys,
    token_variable,
)
from mail.net.entries import Endpoints, SwarmEntries
from mail.net.peers import PeerAccess
from mail.net.registry_file import RegistryContent, RegistryTable
from mail.net.signatures import KEYS_PATH
from mail.net.types import ProposedSwarm, PublicKey, SwarmEndpoint
from mail.version import get_protocol_version

if TYPE_CHECKING:
    import httpx

_INTERVAL: Final = 30
_AT_ONCE: Final = 8
_SHOWN: Final = 64

_log = logging.getLogger("mail.registry")

_CHECKS_AT_ONCE: Final = 16
_LONGEST_PAUSE: Final = 600.0

Observe = Callable[[SwarmEndpoint, float | None], None]
"""Takes the entry that was checked and the seconds until it answered; None when it did not."""


@dataclass(slots=True)
class _Record:
    """Of one address: how often in a row it did not answer, and when it is asked next."""

    base_url: str
    due: float = 0.0
    failures: int = 0


class HealthChecks:
    """Asks each peer in turn. One that does not answer is asked half as often with each failure.

    Args:
        peers: Returns the entries to check by name.
        observe: Takes what was found.
        ask: Asks one; raises a FetchError when it does not answer as it should.
    """

    def __init__(
        self,
        peers: Callable[[], Mapping[str, SwarmEndpoint]],
        observe: Observe,
        ask: Callable[["httpx.AsyncClient", SwarmEndpoint], Awaitable[None]],
    ) -> None:
        self._peers = peers
        self._observe = observe
        self._ask = ask
        self._records: dict[str, _Record] = {}

    async def run(
        self, client: Callable[[], "httpx.AsyncClient"], interval: Callable[[], float]
    ) -> None:
        """Check for ever.

        Args:
            client: Returns what makes the requests; called when there is a peer.
            interval: Returns the seconds between two checks of a peer that answers.
        """
        while True:
            pause = interval()
            try:
                if self._peers():
                    await self.check_due(client(), pause)
            except Exception:  # noqa: BLE001 - one bad round must not be the last
                _log.exception("a round of health checks failed")
            now = time.monotonic()
            next_due = min((each.due for each in self._records.values()), default=now + pause)
            await asyncio.sleep(max(0.0, min(next_due - now, pause)))

    async def check_due(self, client: "httpx.AsyncClient", interval: float) -> None:
        """Check the peers whose time has come, a few at once."""
        peers = self._peers()
        self._records = {
            name: record
            for name, record in self._records.items()
            if name in peers and peers[name]["base_url"] == record.base_url
        }
        places, now = asyncio.Semaphore(_CHECKS_AT_ONCE), time.monotonic()

        async def check(name: str, endpoint: SwarmEndpoint) -> None:
            record = self._records.setdefault(name, _Record(endpoint["base_url"]))
            if record.due > now:
                return
            async with places:
                answered = await self._check(client, endpoint)
            record.failures = 0 if answered else record.failures + 1
            pause = interval * 2 ** min(max(record.failures - 1, 0), 16)
            record.due = time.monotonic() + min(pause, max(interval, _LONGEST_PAUSE))

        await asyncio.gather(*(check(*peer) for peer in peers.items()))

    async def _check(self, client: "httpx.AsyncClient", endpoint: SwarmEndpoint) -> bool:
        name, began = endpoint["swarm_name"], time.monotonic()
        try:
            await self._ask(client, endpoint)
        except FetchError as error:
            if endpoint["is_active"]:
                _log.warning("swarm %r does not answer any more: %s", name, error)
            self._observe(endpoint, None)
            return False
        if not endpoint["is_active"]:
            _log.info("swarm %r answers again", name)
        self._observe(endpoint, time.monotonic() - began)
        return True


class Discovery(NamedTuple):
    """The result of asking servers which swarms they list.

    ``found`` are the names of new swarms, ``problems`` what could not be used: where, and why.
    """

    found: list[str]
    problems: list[tuple[str, str]]


class SwarmRegistry(SwarmEntries):
    """The swarms that a server or program knows: its own and its peers.

    Entries that are not volatile are kept in a JSON file, or in a database, which several processes
    may share: each sees what the others change. No token is ever written to it, but the name of the
    environment variable that holds it.

    Attributes:
        endpoints: The entries by name; the local swarm is one of them.
        proposed: Swarms that other servers listed and nobody has accepted yet.
        health_check_interval: Seconds between two checks of a peer that answers.
        health_check_task: The task that checks, while it runs.
        session: The session for its requests.
        access: The rules for requests to peers.
    """

    def __init__(  # noqa: PLR0913 - the documented parameters
        self,
        local_swarm_name: str,
        local_base_url: str,
        persistence_file: str | None = None,
        local_swarm_description: str = "",
        local_swarm_keywords: Iterable[str] | None = None,
        local_swarm_public: bool = False,
        *,
        access: PeerAccess | None = None,
        max_swarms: int = 1000,
        proposes: bool = False,
        storage: RegistryTable | None = None,
    ) -> None:
        """Create the folder of the file if there is none, and read the file if there is one.

        Args:
            local_swarm_name: The name of the own swarm.
            local_base_url: The address at which others reach it.
            persistence_file: ``registries/<local_swarm_name>.json`` when None or empty.
            local_swarm_description: The purpose of the swarm.
            local_swarm_keywords: Search terms.
            local_swarm_public: Whether it wants to be listed.
            access: The rules for requests to peers. By default private addresses are permitted, but
                no link-local ones.
            max_swarms: The largest number of peers and proposals.
            proposes: Discovery proposes what it finds instead of registering it.
            storage: A place for the entries instead of the file. With it, make the registry and
                call what changes it in a thread without an event loop.
        """
        default = f"registries/{local_swarm_name.replace('/', '_')}.json"
        super().__init__(local_swarm_name, persistence_file or default, storage)
        self.local_swarm_description = local_swarm_description
        self.local_swarm_keywords = list(local_swarm_keywords or ())
        self.local_swarm_public = local_swarm_public
        self.health_check_interval: float = _INTERVAL
        self.health_check_task: asyncio.Task[None] | None = None
        self.session: httpx.AsyncClient | None = None
        self.returned: Callable[[str], None] | None = None
        self.access = access or PeerAccess()
        self._max_swarms = max_swarms
        self._proposes = proposes
        self._checks = HealthChecks(self._peers, self._observe, self._check_health)
        self.register_local_swarm(local_base_url)
        self.load_persistent_endpoints()

    # --- the own swarm --------------------------------------------------------------------------

    def register_local_swarm(self, base_url: str) -> None:
        """Make, or renew, the entry of the own swarm."""
        self.local_base_url = base_url
        facts: SwarmFacts = {
            "name": self.local_swarm_name,
            "version": get_protocol_version(),
            "description": self.local_swarm_description,
            "keywords": self.local_swarm_keywords,
            "public": self.local_swarm_public,
        }
        own = make_endpoint(self.local_swarm_name, base_url.rstrip("/"), facts)
        with self._guard:
            self.endpoints = {own["swarm_name"]: own} | self._peers()

    def replace_local_swarm(
        self, name: str, description: str, keywords: Iterable[str], public: bool
    ) -> None:
        """Let the registry be that of another swarm, at the same address.

        Raises:
            ProtocolError: a peer has that name.
        """
        with self._guard:
            self.check_not_peer(name)
            others = self._peers()
            self.local_swarm_name, self.local_swarm_description = name, description
            self.local_swarm_keywords, self.local_swarm_public = list(keywords), public
            self.endpoints = others
            self.register_local_swarm(self.local_base_url)

    def check_not_peer(self, name: str) -> None:
        """Refuse a name for the own swarm that a registered one has.

        Raises:
            ProtocolError: a peer has that name.
        """
        if name in self._peers():
            raise refuse("name", f"'{name}' is registered as another swarm; remove that first")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **options: Any) -> "SwarmRegistry":
        """Make a registry from what `to_dict` returned.

        Args:
            data: That object. The key ``auth_token`` of older ones is read, too.
            options: Further arguments of the class.

        Raises:
            StoreError: it is not such an object.
        """
        content = RegistryContent.from_json(dict(data))
        about = {"local_swarm_name": "", "local_base_url": "", **content.about}
        made = cls(**about, **options)
        made.endpoints |= {
            name: one for name, one in content.endpoints.items() if name != made.local_swarm_name
        }
        return made

    # --- registering ----------------------------------------------------------------------------

    async def register_swarm(
        self,
        swarm_name: str,
        base_url: str,
        auth_token: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        volatile: bool | None = None,
        public_key: str | Mapping[str, Any] | None = None,
        *,
        listed: bool = False,
    ) -> None:
        """Register another swarm, or register it anew: what is left out stays as it is.

        A server that does not answer yet is inactive, and asked about its swarm once it does. A
        token stays in memory. The file of an entry that is not volatile names the environment
        variable that holds it.

        Args:
            swarm_name: Its name.
            base_url: The address of its server.
            auth_token: The token of this server there, or ``${SWARM_AUTH_TOKEN_<NAME>}``
                for the environment variable that holds it.
            metadata: A small JSON object to store with it. It is shown to anybody.
            volatile: Forget it at the end of this process. So is a new one by default.
            public_key: The key with which it must sign its mail: a JSON Web Key, or the thumbprint
                of one that its server shows. By default it is all keys that its server shows now,
                if it shows any.
            listed: Another server named it: it must answer; where one `proposes`, in public.

        Raises:
            ProtocolError: an argument is wrong (also a ValueError).
            PeerUnreachable: no MAIL server can be reached there (also a RuntimeError).
            StoreError: the file cannot be written. Nothing was changed.
        """
        name, url = check_name(swarm_name), check_base_url(base_url)
        if name == self.local_swarm_name:
            raise refuse("name", f"'{name}' is the name of this server's own swarm")
        before = self.get_swarm_endpoint(name)
        volatile = (before is None or before["volatile"]) if volatile is None else volatile
        token = check_token(name, auth_token) if auth_token else None
        if not volatile:
            _check_environment(name, token)
        meta = check_metadata(metadata)
        facts, keys = await self._ask(name, url, public_key, listed=listed)
        if before is not None:
            held_for, held = self._tokens.get(name, (None, None))
            token = token or (held if held_for == before["base_url"] else before["auth_token_ref"])
            meta = before["metadata"] if meta is None else meta
        entry = make_endpoint(
            name,
            url,
            facts or facts_of({"swarm": {}}),
            auth_token_ref=token if volatile else self._get_auth_token_ref(name, token),
            metadata=meta,
            volatile=volatile,
            public_keys=keys,
        )
        if facts is None:
            entry |= {"is_active": False, "last_seen": None}
        await self._keep(entry, token)

    async def _ask(
        self, name: str, url: str, public_key: str | Mapping[str, Any] | None, *, listed: bool
    ) -> tuple[SwarmFacts | None, list[PublicKey]]:
        """Return what a server says of its swarm, None if it does not answer yet, and the keys.

        Raises:
            ProtocolError, PeerUnreachable: see `register_swarm`.
        """
        access, facts = self._access(listed=listed), None
        try:
            facts = await self._get_remote_swarm_info(access, name, url)
        except PeerUnreachable as error:
            if listed or not isinstance(error.__cause__, NoAnswer):
                raise
            _log.warning("swarm %r is registered, but does not answer yet: %s", name, error)
        if facts is None and public_key is None:
            known = self.get_swarm_endpoint(name)
            return None, known.get("public_keys", []) if known else []
        return facts, await self._keys_of(access, name, url, public_key)

    def _access(self, *, listed: bool) -> PeerAccess:
        """Return how a server is reached; one that others list only at a public address."""
        if listed and self._proposes:
            setting = "a registration by an administrator (POST /swarms)"
            return replace(self.access, policy=EgressPolicy(), setting=setting)
        return self.access

    async def _keep(self, entry: SwarmEndpoint, token: str | None) -> None:
        """Keep a new entry, its token in memory, and say what is missing for the next start."""
        name, ref, volatile = entry["swarm_name"], entry["auth_token_ref"], entry["volatile"]
        put = partial(self._put, entry)
        await asyncio.to_thread(self._apply if volatile else self._commit, put)
        keys = ", ".join(key["kid"] for key in entry.get("public_keys", ()))
        signed = f", and signs with {keys}" if keys else ""
        _log.info("swarm %r is registered at %s%s", name, entry["base_url"], signed)
        if token is None or is_reference(token):
            self._tokens.pop(name, None)
        else:
            self._tokens[name] = (entry["base_url"], token)
        if ref and not volatile and setting(token_variable(name)) is None:
            _log.warning(
                "the token for swarm %r is not kept: set %s before the next start",
                name,
                token_variable(name),
            )
        self._warn_of_missing_token(name)

    async def _get_remote_swarm_info(self, access: PeerAccess, name: str, url: str) -> SwarmFacts:
        """Ask a server about its swarm.

        Raises:
            ProtocolError: it is that of another swarm.
            PeerUnreachable: it does not answer as a MAIL server. The cause is a `NoAnswer` if
                nothing answers there.
        """
        try:
            async with access.client() as client:
                facts = facts_of(await access.get_object(client, f"{url}/"))
        except ValueError as error:  # a FetchError is one
            text = f"failed to get remote swarm info from {url}: {error}"
            raise PeerUnreachable(text, [{"field": "base_url", "problem": str(error)}]) from error
        if facts["name"] not in (None, name):
            other = str(facts["name"])[:_SHOWN]
            raise refuse("base_url", f"the server there serves the swarm {other!r}, not {name!r}")
        return facts

    async def _keys_of(
        self, access: PeerAccess, name: str, url: str, asked: str | Mapping[str, Any] | None
    ) -> list[PublicKey]:
        """Return the keys that a swarm must sign with from now on; none if it need not.

        Raises:
            ProtocolError: its server does not show the key that was asked for, or shows none and
                had one before.
        """
        if isinstance(asked, Mapping):
            return [check_public_key(asked)]
        problem = "it shows none that can be used"
        try:
            async with access.client() as client:
                shown = shown_keys(await access.get_object(client, f"{url}{KEYS_PATH}"))
        except ValueError as error:  # a FetchError is one
            shown, problem = [], str(error)
        known = self.get_swarm_endpoint(name)
        if asked is not None:
            chosen = [key for key in shown if key["kid"] == asked]
            if not chosen:
                kids = ", ".join(key["kid"] for key in shown)
                there = f"it shows {kids}" if kids else problem
                raise refuse(
                    "public_key",
                    f"the server there does not show that key ({there}); compare with what "
                    "'mail swarms key' prints for the other operator",
                )
            return chosen
        if not shown and known is not None and known.get("public_keys"):
            raise refuse(
                "public_key",
                f"'{name}' has signed its mail so far, and its server shows no key at {KEYS_PATH} "
                f"now ({problem}); remove the swarm first if it does not sign any more",
            )
        return shown

    def _put(self, entry: SwarmEndpoint, endpoints: Endpoints, proposed: dict[str, Any]) -> None:
        name, before = entry["swarm_name"], endpoints.get(entry["swarm_name"])
        if name == self.local_swarm_name:
            raise refuse("name", f"'{name}' is the name of this server's own swarm")
        if entry["volatile"] and before is not None and not before["volatile"]:
            raise refuse(
                "volatile",
                f"'{name}' is registered for good; register it with volatile=false, or remove it "
                "first",
            )
        proposed.pop(name, None)
        if before is None:
            self._check_room(endpoints, proposed)
            self._check_variable(name, endpoints)
        endpoints[name] = entry

    def _check_room(self, endpoints: Endpoints, proposed: Mapping[str, Any]) -> None:
        if len(endpoints) - 1 + len(proposed) >= self._max_swarms:
            raise refuse(
                "name",
                f"the registry is full: [server.federation] max_swarms is {self._max_swarms}",
            )

    @staticmethod
    def _check_variable(name: str, endpoints: Endpoints) -> None:
        """Refuse a name whose variable would be that of another swarm, and so its token."""
        variable = token_variable(name)
        for other in endpoints:
            if token_variable(other) == variable:
                raise refuse("name", f"'{name}' and '{other}' would both use {variable}")

    def unregister_swarm(self, swarm_name: str) -> bool:
        """Forget another swarm, or that it was proposed, and tell whether there was one.

        Raises:
            ConfigError: it is the own swarm.
            StoreError: the file cannot be written. Nothing was changed.
        """
        if swarm_name == self.local_swarm_name:
            raise ConfigError(f"'{swarm_name}' is this server's own swarm and stays registered")

        def drop(endpoints: Endpoints, proposed: dict[str, ProposedSwarm]) -> None:
            if endpoints.pop(swarm_name, None) is None:
                proposed.pop(swarm_name, None)

        with self._guard:
            entry = self.get_swarm_endpoint(swarm_name)
            if entry is None and swarm_name not in self.proposed:
                return False
            volatile = entry is not None and entry["volatile"]
            (self._apply if volatile else self._commit)(drop)
            self._tokens.pop(swarm_name, None)
        _log.info("swarm %r is not registered any more", swarm_name)
        return True

    # --- health ---------------------------------------------------------------------------------

    async def start_health_checks(self) -> None:
        """Begin to check the peers, at once and then for ever; does nothing when that goes on.

        In a database, changes of other processes are looked for as well.
        """
        if self.health_check_task is None:
            self.health_check_task = asyncio.create_task(
                self._check_and_watch(), name="health checks of peers"
            )

    async def _check_and_watch(self) -> None:
        checking = self._checks.run(self._opened, lambda: self.health_check_interval)
        await asyncio.gather(checking, self._kept.watch())

    async def stop_health_checks(self) -> None:
        """Stop checking."""
        task, self.health_check_task = self.health_check_task, None
        session, self.session = self.session, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if session is not None:
            await session.aclose()

    def _opened(self) -> "httpx.AsyncClient":
        if self.session is None:
            self.session = self.access.client()
        return self.session

    async def _check_health(self, client: "httpx.AsyncClient", entry: SwarmEndpoint) -> None:
        """Ask a swarm's server how it is, and who it is if it has not said so yet.

        Raises:
            FetchError: it does not answer, or not as that swarm's.
        """
        await self.access.check_health(client, entry["health_check_url"])
        if entry["last_seen"] is not None:
            return
        name, url = entry["swarm_name"], entry["base_url"]

        def put(endpoints: Endpoints, proposed: dict[str, ProposedSwarm]) -> None:
            known = endpoints.get(name)
            if known is not None and known["base_url"] == url and known["last_seen"] is None:
                endpoints[name] = {
                    **known,
                    "version": facts["version"],
                    "swarm_description": facts["description"],
                    "keywords": facts["keywords"],
                    "public": facts["public"],
                    "public_keys": known.get("public_keys") or keys,
                }

        try:
            facts = await self._get_remote_swarm_info(self.access, name, url)
            keys = entry.get("public_keys") or await self._keys_of(self.access, name, url, None)
            await asyncio.to_thread(self._apply if entry["volatile"] else self._commit, put)
        except MAILError as error:
            _log.warning("swarm %r stays inactive: %s", name, error)
            raise FetchError(str(error)) from None

    def _observe(self, checked: SwarmEndpoint, latency: float | None) -> None:
        # Without the lock, which may be held while the file is written; at worst the next check
        # says the same.
        endpoints, name = self.endpoints, checked["swarm_name"]
        current = endpoints.get(name)
        if current is None or current["base_url"] != checked["base_url"]:
            return  # it was registered anew, or removed, in the meantime
        found: SwarmEndpoint = {**current, "is_active": latency is not None}
        if latency is not None:
            found |= {"last_seen": datetime.now(UTC), "latency": latency}
        endpoints[name] = found
        if found["is_active"] and not current["is_active"] and self.returned is not None:
            self.returned(name)

    async def aclose(self) -> None:
        """Stop checking, forget volatile entries, and write the file.

        Raises:
            StoreError: it cannot be written.
        """
        await self.stop_health_checks()
        await asyncio.to_thread(self.cleanup_volatile_endpoints)

    # --- discovery ------------------------------------------------------------------------------

    async def discover_swarms(self, discovery_urls: Iterable[str]) -> Discovery:
        """Ask servers which swarms they list, and register those that are new, as volatile ones.

        A registry that `proposes` only notes them; see `accept_swarm`. What a server says about a
        swarm that is already known changes nothing, and no token is taken from it.

        Args:
            discovery_urls: The base addresses of MAIL servers.
        """
        places = asyncio.Semaphore(_AT_ONCE)

        async def ask(url: str) -> Discovery:
            async with places:
                return await self._discover_from_endpoint(url)

        every = await asyncio.gather(*(ask(url) for url in dict.fromkeys(discovery_urls)))
        found = dict.fromkeys(name for each in every for name in each.found)
        return Discovery([*found], [problem for each in every for problem in each.problems])

    async def _discover_from_endpoint(self, url: str) -> Discovery:
        try:
            base_url = check_base_url(url, "discovery_urls")
            access = self._access(listed=True)
            async with access.client() as client:
                listing = await access.get_listing(client, base_url)
        except ValueError as error:  # a FetchError is one
            return Discovery([], [(url[:_SHOWN], str(error))])
        new: dict[str, ProposedSwarm] = {}
        result = Discovery([], [])
        for entry in listing[: self._max_swarms]:
            try:
                listed = self._listed(entry, base_url)
            except ValueError as error:
                result.problems.append((base_url, str(error)))
            else:
                if listed["swarm_name"] not in self.endpoints:
                    new.setdefault(listed["swarm_name"], listed)
        if self._proposes:
            result.found.extend(await asyncio.to_thread(self._propose, new))
        else:
            await self._import(new.values(), result)
        return result

    def _listed(self, entry: Any, base_url: str) -> ProposedSwarm:
        if not isinstance(entry, dict):
            raise refuse("swarms", "an entry is not an object")
        name = entry.get("swarm_name") or entry.get("name")  # the older key
        if not isinstance(name, str):
            raise refuse("swarm_name", "must be text")
        return proposal_from_json(name, {**entry, "listed_by": base_url})

    def _propose(self, new: Mapping[str, ProposedSwarm]) -> list[str]:
        added: list[str] = []

        def change(endpoints: Endpoints, proposed: dict[str, ProposedSwarm]) -> None:
            room = self._max_swarms - (len(endpoints) - 1) - len(proposed)
            added[:] = [n for n in new if n not in endpoints and n not in proposed][:room]
            proposed.update((name, new[name]) for name in added)

        if new:
            self._commit(change)
        return added

    async def _import(self, new: Iterable[ProposedSwarm], result: Discovery) -> None:
        places = asyncio.Semaphore(_AT_ONCE)

        async def register(swarm: ProposedSwarm) -> None:
            try:
                async with places:
                    await self.register_swarm(swarm["swarm_name"], swarm["base_url"], listed=True)
            except MAILError as error:
                result.problems.append((swarm["base_url"], str(error)))
            else:
                result.found.append(swarm["swarm_name"])

        await asyncio.gather(*map(register, new))

    async def accept_swarm(self, swarm_name: str) -> None:
        """Register a swarm that was proposed, for good.

        Raises:
            UnknownSwarm: it was not.
            ProtocolError, PeerUnreachable, StoreError: see `register_swarm`.
        """
        proposal = self.get_proposed_swarms().get(swarm_name)
        if proposal is None:
            raise UnknownSwarm(f"no swarm '{swarm_name[:_SHOWN]}' is proposed")
        await self.register_swarm(swarm_name, proposal["base_url"], volatile=False, listed=True)


def _check_environment(name: str, token: str | None) -> None:
    """Refuse a token that the environment contradicts: after the next start that would hold.

    Raises:
        ProtocolError: the swarm's variable is set to another token.
    """
    held = setting(token_variable(name))
    if token is not None and not is_reference(token) and held not in (None, token):
        raise refuse(
            "auth_token",
            f"{token_variable(name)} is set to another token in the server's environment; change "
            "it there, or leave auth_token out",
        )
