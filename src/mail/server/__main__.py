"""``python -m mail.server``: run the server with the settings of ``mail.toml``."""

from mail.config.server import ServerConfig
from mail.server.run import run_server
from mail.utils.logger import init_logger

if __name__ == "__main__":
    init_logger()
    run_server(ServerConfig())
