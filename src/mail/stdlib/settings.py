"""What the ready-made actions may do, as ``mail.toml`` says it at the time of the call."""

from pathlib import Path

from mail.config.stdlib import FsConfig, HttpConfig, StdlibConfig
from mail.egress.client import EgressPolicy
from mail.errors import ConfigError

__all__ = ["check_settings", "egress_policy", "workspace"]


def workspace(config: FsConfig) -> Path:
    """Return the folder of the file actions, absolute; it need not exist yet."""
    return Path(config.root).expanduser().absolute()


def egress_policy(config: HttpConfig) -> EgressPolicy:
    """Return where requests may go.

    Raises:
        ConfigError: an entry of ``allow`` is no host, address or network.
    """
    try:
        return EgressPolicy(allow=tuple(config.allow))
    except ConfigError as error:
        raise ConfigError(f"[{HttpConfig.table}] 'allow': {error}") from None


def check_settings() -> None:
    """Check the ``[stdlib]`` tables, so that a wrong one stops the start and not the first call.

    Raises:
        ConfigError: naming the file, the key and what is expected.
    """
    egress_policy(StdlibConfig().http)
