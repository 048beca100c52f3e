"""What models can read, and how long histories are, is found out without a network."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from mail.llm.compress import Gauge, context_length, count_tokens

LENGTHS = [
    ("gpt-4o", 128_000),
    ("openai/gpt-4o", 128_000),
    ("litellm_proxy/openai/gpt-4o", 128_000),
    ("litellm_proxy/anthropic/claude-sonnet-4-5", 200_000),
    ("litellm_proxy/team/openai/gpt-4o", 128_000),
    ("openai/fake", None),
    ("litellm_proxy/", None),
    ("a/b/c/d", None),
    ("", None),
    ("scripted/tests:nothing", None),
]


@pytest.mark.parametrize(("model", "length"), LENGTHS)
def test_lengths_are_known_behind_any_number_of_slashes(model: str, length: int | None) -> None:
    assert context_length(model) == length


def test_a_scripted_model_needs_no_library() -> None:
    code = (
        "import sys\nfrom mail.llm.compress import context_length\n"
        "print(context_length('scripted/a:b'), 'litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "False"]


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "openai/gpt-5.1",
        "claude-sonnet-4-5",
        "litellm_proxy/anthropic/claude-opus-4-1",
        "groq/llama-3.1-8b-instant",
        "replicate/meta/llama-2-70b-chat",
        "cohere/command-r",
        "openai/fake",
    ],
)
def test_tokens_are_counted_offline(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(host: object, *_: object, **__: object) -> None:
        asked.append(host)
        raise OSError("there is no network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    text = "Hello world, <|endoftext|> this is MAIL. " * 100
    assert 800 < count_tokens(model, text) < len(text)
    assert asked == []


class Counter:
    """Counts one token for four bytes, and remembers what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, model: str, text: str) -> int:
        self.texts.append(text)
        self.threads.add(threading.current_thread())
        return len(text.encode()) // 4


async def measured(gauge: Gauge, history: list[dict[str, Any]], model: str = "m") -> int:
    gauge.observe(model, history)
    await gauge.count_all(history)
    return gauge.tokens(0)


@pytest.mark.parametrize(
    "coded",
    [
        {"type": "reasoning", "summary": [], "encrypted_content": "x" * 4000},
        {"role": "assistant", "content": [{"type": "thinking", "signature": "x" * 4000}]},
        {
            "role": "user",
            "content": [{"image_url": {"url": "data:image/png;base64," + "x" * 4000}}],
        },
    ],
)
async def test_codes_are_not_counted_as_text(coded: dict[str, Any]) -> None:
    count = Counter()
    tokens = await measured(Gauge(count), [coded])
    assert all("xxxx" not in text for text in count.texts)
    assert 1000 <= tokens < 1100


async def test_an_image_does_not_weigh_as_much_as_its_bytes() -> None:
    image = {"type": "image_generation_call", "id": "ig", "result": "x" * 1_000_000}
    assert await measured(Gauge(Counter()), [image]) < 2100


async def test_a_result_that_looks_like_a_stream_is_text() -> None:
    output = "data: " + "word " * 1000
    result = {"type": "function_call_output", "call_id": "c", "output": output}
    assert await measured(Gauge(Counter()), [result]) > 1200
