"""Settings of server and client; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "ClientConfig",
    "LimitsConfig",
    "ServerConfig",
    "SettingsConfig",
    "StoreConfig",
    "SwarmConfig",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ClientConfig": "mail.config.client",
        **dict.fromkeys(
            ("LimitsConfig", "ServerConfig", "SettingsConfig", "StoreConfig", "SwarmConfig"),
            "mail.config.server",
        ),
    },
)
