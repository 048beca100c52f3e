"""Load the library behind the models at the start, beside the server's work.

Otherwise the first message waits for it, seconds long, and from then on each full garbage
collection walks its hundreds of thousands of objects while every caller waits.
"""

import gc
import logging
import sys
import threading
from typing import Final

__all__ = ["load_models"]

_ADAPTER: Final = "mail.llm.litellm_model"

_log = logging.getLogger("mail.server")


def load_models() -> threading.Thread | None:
    """Begin to load what the served swarm's agents will need; None when that is nothing.

    For a server in a process of its own, once its swarm was built: the objects that are there
    when the loading ends are never looked at by the garbage collector again.
    """
    if _ADAPTER not in sys.modules or "litellm" in sys.modules:
        return None  # no agent asks a provider's model, or everything is there
    thread = threading.Thread(target=_load, name="model library", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    from mail.llm.litellm_model import load_parts

    try:
        load_parts()
    except Exception:  # noqa: BLE001 - whoever needs the library learns of it with the first call
        _log.exception("the library behind the models cannot be loaded")
        return
    gc.collect()
    gc.freeze()
