"""The import path of `mail.responses_api` in earlier versions; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = ["ResponseRequest", "ResponsesBridge", "ResponsesError", "SwarmOAIClient"]

__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "mail.responses_api"))
