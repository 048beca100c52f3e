"""The server's settings: the ``[server]`` tables of ``mail.toml`` as models."""

import re
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from mail.config.env import DATABASE_URL, LOG_FORMAT, setting
from mail.config.toml import FileBacked, fits
from mail.core.interswarm import INBOX_AGE
from mail.errors import ConfigError

MEMORY_URL: Final = "memory://"
NO_MODEL: Final = "none"
SERVER_STORE_URL: Final = "sqlite:///mail.db"
_ALL_INTERFACES: Final = "0.0.0.0"  # noqa: S104 - the documented default; tokens guard every route

_LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.1", "::1")
_ALLOWED_HOST: Final = r"^((\*\.)?[a-z0-9._-]+|[0-9a-f:.]+)$"
_PORT: Final = re.compile(r":[0-9]*$")
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_BASE_URL: Final = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?[!-~]*")
_BUCKET: Final = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*){0,16}/?"
)
_LONGEST_DELIVERY: Final = (INBOX_AGE - timedelta(days=1)).total_seconds()
_MAX_HOURS: Final = 24 * 365 * 100
_Provider = Literal[
    "openai",
    "anthropic",
    "gemini",
    "mistral",
    "groq",
    "deepseek",
    "xai",
    "openrouter",
    "together_ai",
    "fireworks_ai",
    "litellm_proxy",
]
"""Those whose requests can be checked (`mail.llm.remote`)."""

WebhookEvent = Literal["paused", "approval", "ended"]
WEBHOOK_EVENTS: Final[tuple[WebhookEvent, ...]] = get_args(WebhookEvent)
SECRET_VARIABLE: Final = "MAIL_WEBHOOK_SECRET"  # noqa: S105 - its name
_SHORTEST_SECRET: Final = 16
_SMALLEST_LOG: Final = 1024 * 1024

REMOTE_PROVIDERS: Final[tuple[_Provider, ...]] = get_args(_Provider)
REMOTE_AGENT_PARAMS: Final = (
    "llm",
    "model",
    "system",
    "user_token",
    "reasoning_effort",
    "thinking_budget",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "stop",
    "memory",
    "use_proxy",
    "stream_tokens",
    "print_llm_streams",
    "default_tool_choice",
    "timeout",
    "deadline",
    "reasons",
    "_debug_include_mail_tools",
)
_REMOTE_IMPORTS: Final = ("mail.factories", "mail.examples", "mail.stdlib")


def _is_host(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable()


_Positive = Annotated[int, Field(ge=1)]
_Count = Annotated[int, Field(ge=0)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Days = Annotated[float, Field(gt=0, le=_MAX_HOURS / 24, allow_inf_nan=False)]
_Plain = AfterValidator(lambda url: url.rstrip("/"))
_Host = Annotated[str, fits(_is_host, "must be a host name or an IP address")]
_Origin = Annotated[
    str,
    fits(
        _ORIGIN.fullmatch,
        "expected exact origins such as 'https://app.example.org' or 'http://localhost:3000'; "
        "there is no wildcard",
    ),
]
_ModuleName = Annotated[
    str,
    fits(
        lambda name: all(part.isidentifier() for part in name.split(".")),
        "expected module names such as 'my_package.actions'",
    ),
]
_BaseURL = Annotated[
    str,
    fits(
        lambda url: _BASE_URL.fullmatch(url) and not set(url) & set("@?#"),
        "expected an address such as 'https://mail.example.org'",
    ),
    _Plain,
]
_Bucket = Annotated[
    str, fits(_BUCKET.fullmatch, "expected an address such as 's3://bucket/prefix'"), _Plain
]
_Webhook = Annotated[
    str,
    Field(max_length=2048),
    fits(
        lambda url: _BASE_URL.fullmatch(url) and not set(url) & set("@#"),
        "expected an address such as 'https://hooks.example.org/mail', without credentials",
    ),
]
_LogSize = Annotated[
    _Count,
    fits(
        lambda size: size == 0 or size >= _SMALLEST_LOG,
        f"must be at least {_SMALLEST_LOG} bytes, or 0 for no limit",
    ),
]


class SwarmConfig(FileBacked):
    """``[server.swarm]``: which swarm the server runs.

    ``source`` is the swarms file (see `resolve_swarms_file`), ``name`` the swarm in it;
    ``registry_file`` (in the file also
    ``registry``) is where the registry of other swarms is kept. What the swarm is about
    (``description``, ``keywords``, ``public``) is said in the swarms file.

    ``remote_imports`` are the modules, with all that is inside them, that a swarm definition which
    arrives over HTTP may import from; the swarms file on this machine may import anything.
    ``remote_providers`` are the model providers that such a definition may name,
    ``remote_api_bases`` the hosts, addresses and networks that its models may be asked at although
    they are not public, and ``remote_agent_params`` the parameters that its agents may have.
    """

    table = "server.swarm"
    aliases: ClassVar[Mapping[str, str]] = {"registry": "registry_file"}

    name: str = Field(default="example-no-proxy", min_length=1, max_length=256)
    source: str = "swarms.json"
    registry_file: str = "registries/example-no-proxy.json"
    description: str = ""
    keywords: list[str] = Field(default_factory=list)
    public: bool = False
    remote_imports: list[_ModuleName] = Field(default_factory=lambda: list(_REMOTE_IMPORTS))
    remote_providers: list[_Provider] = Field(default_factory=lambda: list(REMOTE_PROVIDERS))
    remote_api_bases: list[str] = Field(default_factory=list)
    remote_agent_params: list[str] = Field(default_factory=lambda: list(REMOTE_AGENT_PARAMS))


class SettingsConfig(FileBacked):
    """``[server.settings]``: what a task may process and use up, and model output on stdout.

    ``task_message_limit`` counts messages per run; ``task_token_limit`` (tokens) and
    ``task_cost_limit`` (US dollars) hold for all runs of a task together, None is no limit.
    ``dynamic_ctx_ratio`` is the share of a model's context, from 0 (never) to 1, above which older
    history is summarised.
    """

    table = "server.settings"

    task_message_limit: _Positive = 15
    task_token_limit: _Positive | None = None
    task_cost_limit: _AboveZero | None = None
    dynamic_ctx_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    print_llm_streams: bool = True


class StoreConfig(FileBacked):
    """``[server.store]``: where state is kept.

    ``url`` is ``sqlite:///file``, ``postgresql://…``, ``memory://``, or None (the default of
    `resolve_store_url`).
    ``durability`` "full" survives a power loss, "normal" a killed process.
    """

    table = "server.store"

    url: str | None = None
    durability: Literal["full", "normal"] = "full"


class LimitsConfig(FileBacked):
    """``[server.limits]``: how much the server takes on at once. Times are in seconds.

    0 lifts ``max_connections``, ``max_requests`` and the limits per caller: ``max_running_tasks``
    (more are queued), ``max_queued_tasks``, ``max_stored_bytes``, ``max_streams`` and ``body_rate``
    (bytes of bodies a second). A request that waits for a run counts only against
    ``max_connections``. ``max_message_bytes`` is the text of one message.

    ``anonymous_rate`` is how many requests a second without a valid token are answered for one
    address, after a burst of 500; further ones wait. 0 lifts it.
    """

    table = "server.limits"
    gone = frozenset(
        {
            *("body_burst", "body_timeout", "header_timeout", "idempotency_hours"),
            *("idle_timeout", "instance_idle", "max_argument_bytes", "max_downloads"),
            *("max_history_bytes", "max_inflight_bytes", "max_instances", "max_json_values"),
            *("max_open_streams", "max_open_tasks", "max_reply_bytes", "max_result_bytes"),
            *("max_task_bytes", "max_unsent_bytes", "max_uploads", "request_burst"),
            *("request_rate", "send_timeout"),
        }
    )

    max_body_bytes: _Positive = 4 * 1024 * 1024
    max_message_bytes: _Positive = 1024 * 1024
    max_concurrent_turns: _Positive = 512
    shutdown_grace: _NotNegative = 20.0
    max_connections: _Count = 10_000
    max_requests: _Count = 1000
    max_running_tasks: _Count = 256
    max_queued_tasks: _Count = 10_000
    max_stored_bytes: _Count = 1024 * 1024 * 1024
    max_streams: _Count = 256
    body_rate: _NotNegative = 8.0 * 1024 * 1024
    anonymous_rate: _NotNegative = 20.0


class RetentionConfig(FileBacked):
    """``[server.retention]``: how long tasks and letters are kept.

    ``tasks_days`` deletes tasks that have ended and were not changed for so many days;
    ``letters_days`` deletes letters of that age which all recipients have seen. None keeps them.
    """

    table = "server.retention"

    tasks_days: _Days | None = None
    letters_days: _Days | None = None


class FilesConfig(FileBacked):
    """``[server.files]``: the files that participants send to each other.

    ``root`` is the folder for them; None for one beside the SQLite database, with its name and
    ``-files`` (``mail-files`` for ``mail.db``), and for one like that in the working directory with
    PostgreSQL. ``url`` names a bucket instead, ``s3://bucket/prefix``. A file has at most
    ``max_bytes``, is removed after ``expire_days``, and its upload may take ``upload_timeout``
    seconds.
    """

    table = "server.files"

    root: Annotated[str, Field(min_length=1)] | None = None
    url: _Bucket | None = None
    max_bytes: _Positive = 100 * 1024 * 1024
    expire_days: _Days = 30.0
    upload_timeout: _AboveZero = 900.0


class OpenAIConfig(FileBacked):
    """``[server.openai]``: the routes that OpenAI's SDK calls.

    ``enabled`` serves ``/v1/responses`` and ``/v1/models`` to users and administrators.
    """

    table = "server.openai"

    enabled: bool = True


class TeamsConfig(FileBacked):
    """``[server.teams]``: the teams that the swarm declares.

    ``enabled`` lets their members use ``teammate_message`` and ``teammate_broadcast``.
    """

    table = "server.teams"

    enabled: bool = False


class MemoryConfig(FileBacked):
    """``[server.memory]``: what named memories learn from people's answers to approvals.

    ``model`` is the model that writes the updates, None for the entrypoint's. With ``none``, or an
    entrypoint that asks no provider's model, feedback waits.
    """

    table = "server.memory"

    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class FederationConfig(FileBacked):
    """``[server.federation]``: other swarms.

    ``base_url`` is where they reach this server, None the address that it listens on.
    ``allow_private`` lets registered swarms be at private addresses, too; ``max_swarms`` is how
    many the registry holds, those that are only proposed included. ``expose`` are the agents that
    mail of other swarms may reach, among those with ``enable_entrypoint`` or ``enable_interswarm``;
    None for all of these. Mail that another swarm has not taken after ``give_up_after`` seconds is
    given up, at most six days: servers know a repeated delivery for seven. A request that has got
    no answer ``answer_within`` seconds after it was written is closed.

    ``signing_key_file`` is the file of the key with which this server signs its mail, None for mail
    without signatures. ``require_signatures`` refuses mail that is not signed. A signature counts
    for ``signature_max_age`` seconds; clocks may differ by ``clock_skew`` seconds.
    """

    table = "server.federation"

    base_url: _BaseURL | None = None
    allow_private: bool = False
    max_swarms: _Positive = 1000
    expose: list[str] | None = None
    give_up_after: Annotated[float, Field(gt=0, le=_LONGEST_DELIVERY)] = 24 * 3600.0
    answer_within: Annotated[float, Field(gt=0, le=_MAX_HOURS * 3600)] = 7 * 24 * 3600.0
    signing_key_file: Annotated[str, Field(min_length=1)] | None = None
    require_signatures: bool = False
    signature_max_age: Annotated[float, Field(gt=0, le=_LONGEST_DELIVERY)] = 300.0
    clock_skew: Annotated[float, Field(ge=0, le=3600)] = 60.0


class WebhookConfig(FileBacked):
    """``[server.webhook]``: who is told when a task pauses, asks a person, or ends.

    ``url`` is where it is posted, None for nowhere; ``allow_private`` lets that be a loopback or
    private address. ``secret_env`` names the environment variable with the secret that signs the
    messages, and ``events`` what is told.
    """

    table = "server.webhook"

    url: _Webhook | None = None
    secret_env: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,127}$")] = SECRET_VARIABLE
    events: list[WebhookEvent] = Field(default_factory=lambda: [*WEBHOOK_EVENTS])
    allow_private: bool = False


class ServerConfig(FileBacked):
    """``[server]``: where the server listens, how its log looks, and its nested tables.

    ``log_format`` is ``"human"`` (lines for people), ``"json"`` (an object a line), or ``"auto"``:
    human on a terminal, JSON everywhere else. The files of the log have ``log_max_bytes`` together,
    0 for any size; the oldest are deleted.

    ``workers`` is the number of processes that share the port; several need a PostgreSQL store.

    ``docs`` serves the documentation of the HTTP API at ``/docs``, ``console`` the web console at
    ``/console``.

    ``allowed_hosts`` are further names that requests may address the server by, in lower case; see
    `answers_to`.

    ``cors_origins`` are the origins whose pages may call the server from a browser, each written as
    browsers do (lower case, no path, no default port).
    """

    table = "server"

    port: int = Field(default=8000, ge=0, le=65535)
    host: _Host = _ALL_INTERFACES
    reload: bool = False
    workers: _Positive = 1
    debug: bool = False
    docs: bool = True
    console: bool = True
    allowed_hosts: list[Annotated[str, Field(pattern=_ALLOWED_HOST)]] = Field(default_factory=list)
    cors_origins: list[_Origin] = Field(default_factory=list)
    log_format: Literal["auto", "human", "json"] = "auto"
    log_max_bytes: _LogSize = 1024 * 1024 * 1024
    swarm: SwarmConfig = Field(default_factory=SwarmConfig)
    settings: SettingsConfig = Field(default_factory=SettingsConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    retention: RetentionConfig = Field(default_factory=RetentionConfig)
    files: FilesConfig = Field(default_factory=FilesConfig)
    openai: OpenAIConfig = Field(default_factory=OpenAIConfig)
    teams: TeamsConfig = Field(default_factory=TeamsConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    federation: FederationConfig = Field(default_factory=FederationConfig)
    webhook: WebhookConfig = Field(default_factory=WebhookConfig)


def resolve_store_url(
    config: ServerConfig,
    environ: Mapping[str, str] | None = None,
    default: str = SERVER_STORE_URL,
) -> str:
    """Return the URL of the store that applies.

    ``DATABASE_URL`` wins over ``[server.store] url``; ``none`` is memory.

    Args:
        config: The server's settings.
        environ: The environment; this process's when None.
        default: The value with neither of them; a server keeps its state in ``mail.db``.
    """
    url = setting(DATABASE_URL, environ) or config.store.url or default
    return MEMORY_URL if url.lower() == "none" else url


def store_url_place(config: ServerConfig, environ: Mapping[str, str] | None = None) -> str:
    """Return what names the store that applies, for errors about it."""
    exported = setting(DATABASE_URL, environ)
    # A flag is exported as the variable, too.
    return DATABASE_URL if exported and exported != config.store.url else config.store.place("url")


def webhook_secret(config: WebhookConfig, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the secret that signs the messages to the webhook.

    Raises:
        ConfigError: the variable is not set, or too short for a secret.
    """
    secret = setting(config.secret_env, environ)
    if secret is None or len(secret) < _SHORTEST_SECRET:
        raise ConfigError(
            f"{config.place('url')} needs a secret of at least {_SHORTEST_SECRET} characters in "
            f"the environment variable {config.secret_env}"
        )
    return secret.encode()


def serves_example(swarm: SwarmConfig) -> bool:
    """Tell whether the packaged example is served: no file is named and the default is missing."""
    return "source" not in swarm.model_fields_set and not Path(swarm.source).is_file()


def resolve_swarms_file(swarm: SwarmConfig) -> Path:
    """Return the swarms file that applies; it need not exist if it was named."""
    if not serves_example(swarm):
        return Path(swarm.source)
    package = Path(__file__).resolve().parents[1]
    packaged = package / "examples" / "swarms.json"
    checkout = package.parents[1] / "swarms.json"
    return packaged if packaged.is_file() else checkout


def resolve_log_format(config: ServerConfig, environ: Mapping[str, str] | None = None) -> str:
    """Return the form of the log that applies: ``MAIL_LOG_FORMAT`` wins over the file.

    The value of the variable is not checked here.
    """
    return setting(LOG_FORMAT, environ) or config.log_format


def base_url(config: ServerConfig) -> str:
    """Return the URL at which others reach the server: as it is set, else as this machine does."""
    if config.federation.base_url is not None:
        return config.federation.base_url
    host = "localhost" if config.host in ("", _ALL_INTERFACES, "::") else config.host
    return f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"


def checks_host(config: ServerConfig) -> bool:
    """Tell whether the server answers to its own names only, as it must where it is on loopback."""
    is_local = any(fnmatchcase(config.host.lower(), each) for each in (*_LOOPBACK, "127.*"))
    return is_local or bool(config.allowed_hosts)


def answers_to(config: ServerConfig, host: str) -> bool:
    """Tell whether a ``Host`` header has a name of the server: of this machine, or as it is set."""
    name = _PORT.sub("", host).strip("[]").lower()
    own = urlsplit(config.federation.base_url or "").hostname or config.host
    names = (*_LOOPBACK, config.host, own, *config.allowed_hosts)
    return any(fnmatchcase(name, each) for each in names)


def export_environment(config: ServerConfig, environ: MutableMapping[str, str]) -> None:
    """Tell child processes and tools which swarm runs where; these are never read back."""
    environ["SWARM_NAME"] = config.swarm.name
    environ["SWARM_SOURCE"] = str(resolve_swarms_file(config.swarm))
    environ["SWARM_REGISTRY_FILE"] = config.swarm.registry_file
    environ["BASE_URL"] = base_url(config)
