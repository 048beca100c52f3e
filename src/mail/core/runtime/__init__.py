"""The engine: mailbox, turns, tasks. `MAILRuntime` is its face."""

from mail.lazy import lazy_exports

__all__ = [
    "UNSET",
    "FollowedRun",
    "MAILRuntime",
    "Run",
    "RunEnd",
    "RunRequest",
    "RunResult",
    "RuntimeSettings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "FollowedRun": "mail.core.runtime.runs",
        "MAILRuntime": "mail.core.runtime.runtime",
        "Run": "mail.core.runtime.runs",
        "RunEnd": "mail.core.runtime.waiters",
        "RunRequest": "mail.core.runtime.submission",
        "RunResult": "mail.core.runtime.waiters",
        "RuntimeSettings": "mail.core.runtime.settings",
        "UNSET": "mail.core.runtime.settings",
    },
)
