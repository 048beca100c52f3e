"""``python -m mail.server``: run the server with the settings of ``mail.toml``, and no flags."""

import sys

from mail.config.server import ServerConfig, resolve_log_format
from mail.errors import MAILError
from mail.logs.setup import init_logger
from mail.server.run import run_server


def main() -> int:
    """Run the server; return the exit code."""
    if len(sys.argv) > 1:
        sys.stderr.write("mail: python -m mail.server takes no arguments; use `mail server`\n")
        return 2
    try:
        config = ServerConfig()
        init_logger(log_format=resolve_log_format(config), max_bytes=config.log_max_bytes)
        run_server(config)
    except MAILError as error:
        sys.stderr.write(f"mail: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
