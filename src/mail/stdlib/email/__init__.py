"""Mailboxes and calendars behind one seam; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = ["Backend", "Email", "Event", "Meeting", "open_backend"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Backend": "mail.stdlib.email.backends",
        "Email": "mail.stdlib.email.messages",
        "Event": "mail.stdlib.email.calendars",
        "Meeting": "mail.stdlib.email.calendars",
        "open_backend": "mail.stdlib.email.backends",
    },
)
