"""The client's settings: the ``[client]`` table of ``mail.toml`` as a model."""

from pydantic import Field

from mail.config.toml import FileBacked


class ClientConfig(FileBacked):
    """``[client]``: seconds a request may take, and whether requests are logged."""

    table = "client"

    timeout: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    verbose: bool = False
