"""Settings of server, client and ready-made actions; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "ClientConfig",
    "EmailConfig",
    "FederationConfig",
    "FilesConfig",
    "FsConfig",
    "HttpConfig",
    "LimitsConfig",
    "MemoryConfig",
    "OpenAIConfig",
    "RetentionConfig",
    "ServerConfig",
    "SettingsConfig",
    "StdlibConfig",
    "StoreConfig",
    "SwarmConfig",
    "TeamsConfig",
    "WebhookConfig",
]

_ELSEWHERE = {
    "ClientConfig": "mail.config.client",
    **dict.fromkeys(
        ("EmailConfig", "FsConfig", "HttpConfig", "StdlibConfig"), "mail.config.stdlib"
    ),
}

__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "mail.config.server") | _ELSEWHERE)
