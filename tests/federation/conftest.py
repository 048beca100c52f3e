"""What the commands that are tried here set up for the log ends with each test."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _clean_logging() -> Iterator[None]:
    mail = logging.getLogger("mail")
    before = (list(mail.handlers), mail.level, mail.propagate)
    yield
    mail.handlers, level, mail.propagate = before
    mail.setLevel(level)
