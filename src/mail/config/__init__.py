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

__getattr__ = lazy_exports(
    __name__,
    {
        "ClientConfig": "mail.config.client",
        **dict.fromkeys(
            ("EmailConfig", "FsConfig", "HttpConfig", "StdlibConfig"), "mail.config.stdlib"
        ),
        **dict.fromkeys(
            (
                "FederationConfig",
                "FilesConfig",
                "LimitsConfig",
                "MemoryConfig",
                "OpenAIConfig",
                "RetentionConfig",
                "ServerConfig",
                "SettingsConfig",
                "StoreConfig",
                "SwarmConfig",
                "TeamsConfig",
                "WebhookConfig",
            ),
            "mail.config.server",
        ),
    },
)
