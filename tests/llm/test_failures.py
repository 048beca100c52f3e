"""Exceptions of provider libraries become ModelError with the provider's own words."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from mail.llm.failures import model_error, redact


class ProviderError(Exception):
    def __init__(self, text: str, **fields: object) -> None:
        super().__init__(text)
        vars(self).update(fields)


class APIConnectionError(ProviderError):
    pass


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - Slow down.", None),
        ("noise", {"message": "Slow down.", "type": "x"}),
        ("noise", {"error": {"message": "Slow down."}}),
        ("noise", "Slow down."),
        ("Slow down. Original exception: X: y", None),
    ],
)
def test_the_reason_is_the_providers(text: str, body: object) -> None:
    error = model_error(ProviderError(text, body=body, status_code=429))
    assert str(error) == "model call failed (HTTP 429): Slow down."
    assert error.status == 429


def test_wrapped_errors_are_unwrapped() -> None:
    inner = ProviderError("the cause", status_code=503, litellm_response_headers={"a": "b"})
    error = model_error(ProviderError("wrapper", original_exception=inner, status_code=500))
    assert (str(error), error.status) == ("model call failed (HTTP 503): the cause", 503)


def test_a_broken_connection_has_no_status() -> None:
    assert model_error(APIConnectionError("gone", status_code=500)).status is None
    assert model_error(ProviderError("Cannot connect to host", status_code=500)).status is None


def test_a_missing_key_is_no_server_error() -> None:
    error = ProviderError("Missing credentials. Please pass an `api_key`", status_code=500)
    assert model_error(error).status == 401


def test_retry_after_may_be_seconds_or_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    for value, low, high in (("2.5", 2.5, 2.5), (later, 50, 61), ("soon", None, None)):
        error = model_error(ProviderError("x", litellm_response_headers={"retry-after": value}))
        if low is None:
            assert error.retry_after is None
        else:
            assert error.retry_after is not None
            assert low <= error.retry_after <= high


def test_reasons_are_cut() -> None:
    assert len(str(model_error(ProviderError("x" * 10_000)))) < 600


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-abcDEF_123",
        "Bearer eyJhbGciOi.J9.x",
        "AIzaSyA1234567890abc",
        "https://x/?key=abcdef",
        "my-own-token",
        "environment-value",
    ],
)
def test_what_looks_like_a_key_is_redacted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "environment-value")
    shown = redact(f"wrong: {text} !", ["my-own-token", ""])
    assert "[redacted]" in shown
    assert text not in shown
    assert shown.endswith(" !")


def test_ordinary_text_stays() -> None:
    text = "The model `gpt-5` does not exist; ask-me-anything about task-123."
    assert redact(text) == text
