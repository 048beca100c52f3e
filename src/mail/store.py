"""The documented import path of LangMem's store; see `mail.utils.store`."""

from mail.utils.store import get_langmem_store

__all__ = ["get_langmem_store"]
