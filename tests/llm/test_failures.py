"""Exceptions of provider libraries become ModelError with the provider's own words."""

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from mail.errors import ModelError
from mail.llm.failures import Named, RefusedCall, ReportedError, model_error
from mail.redaction import redact_foreign as redact


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
        "a-bedrock-value",
    ],
)
def test_what_looks_like_a_key_is_redacted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "environment-value")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "a-bedrock-value")
    shown = redact(f"wrong: {text} !", ["my-own-token", ""])
    assert "[redacted]" in shown
    assert text not in shown
    assert shown.endswith(" !")


def test_ordinary_text_stays() -> None:
    text = "The model `gpt-5` does not exist; ask-me-anything about task-123."
    assert redact(text) == text


class HTTPStatusError(ProviderError):
    """Like httpx's, which all libraries have underneath."""


def raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_the_status_is_that_of_the_answer_whatever_a_library_makes_of_it() -> None:
    response = type("Response", (), {"status_code": 529, "headers": {"retry-after": "3"}})()
    answer = HTTPStatusError("Server error '529'", response=response)
    error = model_error(raised(ProviderError("Overloaded", status_code=500), answer))
    assert (str(error), error.status) == ("model call failed (HTTP 529): Overloaded", 529)
    assert error.retry_after == 3.0


@pytest.mark.parametrize(
    "text",
    [
        """b'{"type": "error", "error": {"type": "api_error", "message": "Oh no."}}'""",
        '{"error": {"message": "Oh no.", "code": null}}',
        "litellm.InternalServerError: AnthropicException - Oh no.. Handle with `litellm.X`.",
        "AnthropicException BadGatewayError - b'Oh no.'",
        'litellm.APIConnectionError: Oh no.\nTraceback (most recent call last):\n  File "/x.py"',
    ],
)
def test_what_a_library_puts_around_the_reason_is_taken_off(text: str) -> None:
    outer = ProviderError(f"litellm.APIError: {text}", status_code=500)
    assert str(model_error(raised(outer, ProviderError(text, status_code=500)))) == (
        "model call failed: Oh no."
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"message": "x", "type": "invalid_request_error", "code": "server_error"}, 500),
        ({"message": "x", "type": "invalid_request_error", "code": None}, 400),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, 429),
        ({"message": "x", "code": 503}, 503),
        ({"message": "x", "code": "429"}, 429),
        ({"message": "x", "type": "never_heard_of"}, None),
    ],
)
def test_in_a_stream_the_name_of_an_error_stands_for_its_status(
    body: dict[str, object], status: int | None
) -> None:
    error = model_error(ProviderError("x", body=body), began=True)
    assert (str(error), error.status) == ("model call failed: x", status)
    reported = model_error(ReportedError(body), began=True)
    assert (str(reported), reported.status) == ("model call failed: x", status)


def test_the_status_of_an_answer_counts_more_than_a_name_but_for_money() -> None:
    known = {"status_code": 408, "body": {"message": "x", "type": "invalid_request_error"}}
    assert model_error(ProviderError("x", **known)).status == 408
    broke = {"status_code": 429, "body": {"message": "x", "code": "insufficient_quota"}}
    assert model_error(ProviderError("x", **broke)).status == 402


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (ValueError("no such tool"), "no such tool"),
        (KeyError("name"), "KeyError: 'name'"),
        (ModuleNotFoundError("No module named 'google'"), "ModuleNotFoundError: No module named"),
    ],
)
def test_a_request_that_cannot_be_written_would_fail_again(cause: Exception, reason: str) -> None:
    error = model_error(cause)
    assert str(error).startswith(f"model call failed: this request cannot be made: {reason}")
    assert error.status == 400
    assert model_error(cause, began=True).status is None  # the provider wrote something odd


@pytest.mark.parametrize("cause", [ConnectionResetError("gone"), TimeoutError("late"), OSError()])
def test_a_broken_transport_may_heal(cause: Exception) -> None:
    assert model_error(raised(ValueError("what came of it"), cause)).status is None


def test_garbage_may_heal() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{oops")
    assert model_error(caught.value).status is None


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "1e400", "5,5"])
def test_a_retry_after_without_sense_counts_as_none(value: str) -> None:
    headers = {"retry-after": value}
    limited = ProviderError("x", status_code=429, litellm_response_headers=headers)
    assert model_error(limited).retry_after is None


def test_our_own_errors_stay_what_they_are() -> None:
    own = ModelError("model call failed: set it", status=400)
    assert model_error(own) is own


def test_the_callers_token_is_not_in_what_a_provider_reports() -> None:
    reported = ReportedError({"message": "token my-own-token is over its budget"})
    error = model_error(reported, ["my-own-token"], began=True)
    assert str(error) == "model call failed: token [redacted] is over its budget"


@pytest.mark.parametrize("text", ["a" * 60_000, "a:" * 30_000 + " @", " " * 60_000])
def test_long_texts_are_read_in_no_time(text: str) -> None:
    began = time.process_time()
    redact(text)
    model_error(ProviderError(text, status_code=500))
    assert time.process_time() - began < 2


def test_a_key_is_not_cut_in_half() -> None:
    beginning = "too long: " + "word " * 780  # 3,910 characters
    password = "p" * 200
    shown = redact(f"{beginning}http://me:{password}@host/")
    assert shown == beginning.rstrip()
    assert "ppp" not in shown
    assert redact("x" * 10_000) == "x" * 4000
    assert redact("word sk-abcdefgh " * 1000).count("[redacted]") > 200
    secret = "s3cret-of-mine"
    assert "s3c" not in redact("x" * 3995 + secret, [secret])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"message": "No.", "param": "stream", "code": None}, Named("No.", "stream")),
        ({"error": {"message": "No.", "param": None, "code": 400}}, Named("No.", code="400")),
        (
            {"code": "invalid-argument", "error": "Not that effort."},
            Named("Not that effort.", code="invalid-argument"),
        ),
        ([{"error": {"code": 400, "message": "Budget."}}], Named("Budget.", code="400")),
        (
            {"message": "No.", "type": "x", "code": "y", "failed_generation": ""},
            Named("No.", code="y", kind="x", generation=""),
        ),
        ({"detail": [{"loc": ["body", "x"], "msg": "Bad."}, "?"]}, Named("x: Bad.")),
        ({"message": "It has {} in it.", "type": "error"}, Named("It has {} in it.")),
    ],
)
def test_what_an_error_names_is_kept(body: object, named: Named) -> None:
    error = model_error(ProviderError("noise", body=body, status_code=400))
    assert isinstance(error, RefusedCall)
    assert error.named == named
    assert vars(error).keys() == {"status", "retry_after", "most_attempts", "named"}


def test_what_is_kept_is_short_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "environment-value")
    secret = "x" * 190 + " environment-value and my-own-token"
    body = {"message": secret * 50, "param": secret, "code": secret, "type": secret}
    error = model_error(ProviderError("x", body=body, status_code=400), ["my-own-token"])
    assert isinstance(error, RefusedCall)
    for text in (error.named.text, error.named.param, error.named.code, error.named.kind):
        assert "environment" not in text
        assert "my-own" not in text
    assert len(error.named.param) == len(error.named.code) == len(error.named.kind) == 200
    assert len(error.named.text) <= 4000


@pytest.mark.parametrize("depth", [3, 400])
def test_nested_errors_are_read_to_some_depth(depth: int) -> None:
    body: object = "Deep."
    for _ in range(depth):
        body = {"error": body}
    error = model_error(ProviderError("noise", body=body, status_code=400))
    assert ("Deep." in str(error)) is (depth == 3)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Your default credentials were not found. To set up ...", 401),
        ("Unable to locate credentials", 401),
    ],
)
def test_missing_credentials_are_no_server_error(text: str, status: int) -> None:
    assert model_error(ProviderError(text, status_code=500)).status == status
