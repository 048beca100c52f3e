"""What each provider refuses beyond its wire format: its rules, and the words it refuses in.

Every check takes a request and returns the answer that the provider gives, or None if it has no
objection. Which provider has which rules, and where each rule is known from, is data:
`tests.support.provider.personalities`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider import thinking as claude
from tests.support.provider.inbound import WireName
from tests.support.provider.issued import Issued
from tests.support.provider.steps import AnyStep

__all__ = ["BINDING", "Asked", "Check", "Efforts", "Refusal", "effort_of", "is_forced"]

BINDING = "thinking-binding-controls-2026-08-01"
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_LONGEST_ID = 64
_DUMMY = "skip_thought_signature_validator"
_VERIFY = (
    "Please go to: https://platform.openai.com/settings/organization/general and click on Verify "
    "Organization. If you just verified, it can take up to 15 minutes for access to propagate."
)
Efforts = Mapping[str, tuple[str, ...]]
"""Of each pattern of model names the efforts that are accepted; the first that matches counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as a rule sees it.

    ``owner`` is the provider that it came to, ``streamed`` tells that its reply comes in pieces.
    """

    body: Mapping[str, Any]
    wire: WireName = "completions"
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    issued: Issued = field(default_factory=Issued)
    owner: str = ""
    streamed: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages."""
        return [one for one in self.body.get("messages") or () if isinstance(one, dict)]

    def is_model(self, pattern: str) -> bool:
        """Whether the model's name has the pattern somewhere."""
        return re.search(pattern, self.model) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer: status, body and headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it says, wherever the body has it."""
        error = self.body.get("error", self.body)
        said = error.get("message") if isinstance(error, dict) else error
        return said if isinstance(said, str) else json.dumps(said)


Check = Callable[[Asked], Refusal | None]


# The shapes of answers.


def _openai(
    message: str,
    param: str | None = None,
    code: Any = None,
    *,
    status: int = 400,
    kind: str = "invalid_request_error",
) -> Refusal:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Refusal(status=status, body={"error": error})


def _plain(message: str, **more: Any) -> Refusal:
    """DeepSeek, Kimi, Groq: no param, no code."""
    return Refusal(
        status=400, body={"error": {"message": message, "type": "invalid_request_error", **more}}
    )


def _mistral(message: Any, kind: str, code: str | None, status: int = 400) -> Refusal:
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": code}
    return Refusal(status=status, body=body)


def _xai(message: str, code: str = "invalid-argument") -> Refusal:
    return Refusal(status=400, body={"code": code, "error": message})


def _router(message: str) -> Refusal:
    return Refusal(status=400, body={"error": {"message": message, "code": 400}})


def _google(message: str) -> Refusal:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Refusal(status=400, body={"error": error})


def _anthropic(message: str) -> Refusal:
    error = {"type": "invalid_request_error", "message": message}
    return Refusal(status=400, body={"type": "error", "error": error, "request_id": "req_fake"})


def _ollama(message: str) -> Refusal:
    return Refusal(status=400, body={"error": message})


def _bedrock(message: str) -> Refusal:
    headers = {"x-amzn-ErrorType": "ValidationException"}
    return Refusal(status=400, body={"message": message}, headers=headers)


# What requests ask for.


def is_forced(asked: Asked) -> bool:
    """Whether the model must call a tool, in any of the formats."""
    choice = asked.body.get("tool_choice")
    if isinstance(choice, dict):
        return choice.get("type") not in ("auto", "none")
    return choice in ("required", "any")


def effort_of(asked: Asked) -> str | None:
    """The reasoning effort, if any."""
    reasoning = asked.body.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        return str(reasoning["effort"])
    given = asked.body.get("reasoning_effort")
    return None if given is None else str(given)


def _thinking(asked: Asked) -> str | None:
    given = asked.body.get("thinking")
    return given.get("type") if isinstance(given, dict) else None


def _calling(asked: Asked) -> Iterator[tuple[int, dict[str, Any]]]:
    for at, message in enumerate(asked.messages):
        if message.get("role") == "assistant" and message.get("tool_calls"):
            yield at, message


def _call_ids(asked: Asked) -> Iterator[tuple[str, str]]:
    """Yield where an id of a call stands, and the id."""
    for at, message in enumerate(asked.messages):
        for place, call in enumerate(message.get("tool_calls") or ()):
            yield f"messages[{at}].tool_calls[{place}].id", str(call.get("id"))
        if message.get("role") == "tool":
            yield f"messages[{at}].tool_call_id", str(message.get("tool_call_id"))
    given = asked.body.get("input")
    for at, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("call_id") is not None:
            yield f"input[{at}].call_id", str(item["call_id"])


def _listed(values: Sequence[str]) -> str:
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def _accepted(asked: Asked, table: Efforts) -> tuple[str, ...] | None:
    """Return the efforts of a model, or None if the table does not know it."""
    return next((values for pattern, values in table.items() if asked.is_model(pattern)), None)


# Mistral and NIM.


def mistral_order(asked: Asked) -> Refusal | None:
    """A tool's result is followed by an assistant or another result."""
    for before, message in zip(asked.messages, asked.messages[1:], strict=False):
        role = message.get("role")
        if before.get("role") == "tool" and role in ("user", "system"):
            return _mistral(
                f"Unexpected role '{role}' after role 'tool'",
                "invalid_request_message_order",
                "3230",
            )
    return None


def mistral_last(asked: Asked) -> Refusal | None:
    """The last message is a user's or a tool's."""
    last = asked.messages[-1] if asked.messages else {}
    if last.get("role") != "assistant" or last.get("prefix"):
        return None
    return _mistral(
        "Expected last role User or Tool (or Assistant with prefix or continue_final_message set "
        "to True) for serving but got assistant",
        "invalid_request_message_order",
        "3230",
    )


def mistral_empty(asked: Asked) -> Refusal | None:
    """An assistant says something or calls something."""
    for message in asked.messages:
        empty = not message.get("content") and not message.get("tool_calls")
        if message.get("role") == "assistant" and empty:
            return _mistral(
                "Assistant message must have either content or tool_calls, but not both.",
                "invalid_request_message_order",
                "3230",
            )
    return None


def mistral_ids(asked: Asked) -> Refusal | None:
    """Ids of calls have nine letters and digits."""
    for _, call_id in _call_ids(asked):
        if not _NINE.fullmatch(call_id):
            return _mistral(
                f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9.",
                "invalid_function_call",
                "3280",
            )
    return None


def mistral_counts(asked: Asked) -> Refusal | None:
    """Each call has one result."""
    calls = sum(len(message["tool_calls"]) for _, message in _calling(asked))
    results = sum(message.get("role") == "tool" for message in asked.messages)
    if calls == results:
        return None
    return _mistral(
        "Not the same number of function calls and responses",
        "invalid_request_message_order",
        "3230",
    )


_MISTRAL_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "name", "tool_call_id"},
}
_MISTRAL_BODY = {
    "model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed",
    "metadata", "response_format", "tools", "tool_choice", "presence_penalty", "frequency_penalty",
    "n", "prediction", "parallel_tool_calls", "prompt_mode", "reasoning_effort", "guardrails",
    "safe_prompt", "prompt_cache_key",
}  # fmt: skip


def mistral_extra(asked: Asked) -> Refusal | None:
    """Nothing unknown, neither beside the messages nor in one; the message is no text here."""
    extra: list[tuple[list[Any], Any]] = [
        (["body", key], asked.body[key]) for key in asked.body if key not in _MISTRAL_BODY
    ]
    for at, message in enumerate(asked.messages):
        role = str(message.get("role"))
        known = _MISTRAL_KEYS.get(role, set())
        extra += [
            (["body", "messages", at, role, key], value)
            for key, value in message.items()
            if key not in known
        ]
    if not extra:
        return None
    words = "Extra inputs are not permitted"
    detail = [
        {"type": "extra_forbidden", "loc": loc, "msg": words, "input": value}
        for loc, value in extra
    ]
    return _mistral({"detail": detail}, "invalid_request_error", None, status=422)


def mistral_effort(asked: Asked) -> Refusal | None:
    """Efforts are none and high."""
    effort = effort_of(asked)
    if effort in (None, "none", "high"):
        return None
    return _mistral(
        f"reasoning_effort: Input should be 'none' or 'high', got '{effort}'",
        "invalid_request_error",
        None,
        status=422,
    )


def nim_auto(asked: Asked) -> Refusal | None:
    """A server without a parser for tools takes no auto (vLLM and NIM speak alike)."""
    if asked.body.get("tool_choice") != "auto" or not asked.body.get("tools"):
        return None
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    return _openai(words, None, 400, kind="BadRequestError")


def nim_extra(asked: Asked) -> Refusal | None:
    """Some parameters are unknown to every hosted model."""
    for name in ("tool_stream", "prompt_cache_key", "reasoning", "reasoning_budget"):
        if name in asked.body:
            return _openai(f"Validation: Unsupported parameter(s): `{name}`")
    return None


# DeepSeek, Qwen, Kimi, Z.AI: forcing, and reasoning that goes back.


def deepseek_thinks(asked: Asked) -> bool:
    """Whether a V4 model thinks: unless it is told not to."""
    off = _thinking(asked) == "disabled" or effort_of(asked) == "none"
    return asked.is_model("deepseek-(v4|flash)") and not off


def deepseek_choice(asked: Asked) -> Refusal | None:
    """No forcing while thinking."""
    if not (deepseek_thinks(asked) and is_forced(asked)):
        return None
    return _plain("Thinking mode does not support this tool_choice")


def deepseek_back(asked: Asked) -> Refusal | None:
    """While thinking every reply with calls brings its reasoning."""
    if not deepseek_thinks(asked):
        return None
    for _, message in _calling(asked):
        if not message.get("reasoning_content"):
            return _plain(
                "The `reasoning_content` in the thinking mode must be passed back to the API."
            )
    return None


def deepseek_shape(asked: Asked) -> Refusal | None:
    """No developers, and content beside calls; the words are assumed."""
    start = "Failed to deserialize the JSON body into the target type: "
    for at, message in enumerate(asked.messages):
        if message.get("role") == "developer":
            return _plain(f"{start}messages[{at}].role: unknown variant `developer`")
        if message.get("role") == "assistant" and message.get("content") is None:
            return _plain(f"{start}messages[{at}]: missing field `content`")
    return None


def qwen_thinks(asked: Asked) -> bool:
    """Whether a Qwen model thinks: the newer ones unless they are told not to."""
    if "enable_thinking" in asked.body:
        return bool(asked.body["enable_thinking"])
    return asked.is_model(r"qwen3\.[5-9]|qwen3-\d+b")


def qwen_choice(asked: Asked) -> Refusal | None:
    """No forcing while thinking."""
    if not (qwen_thinks(asked) and is_forced(asked)):
        return None
    return _openai(
        "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support "
        "being set to required or object in thinking mode",
        None,
        "invalid_parameter_error",
    )


def qwen_stream(asked: Asked) -> Refusal | None:
    """The open models think in streams only."""
    if asked.body.get("stream") or not (asked.is_model(r"qwen3-\d+b") and qwen_thinks(asked)):
        return None
    return _openai(
        "parameter.enable_thinking must be set to false for non-streaming calls",
        None,
        "invalid_parameter_error",
    )


def kimi_thinks(asked: Asked) -> bool:
    """Whether a Kimi model thinks; K2.7 and K3 always do."""
    if asked.is_model(r"kimi-(k2\.7|k3)"):
        return True
    return asked.is_model(r"kimi-k2\.[56]") and _thinking(asked) != "disabled"


def kimi_choice(asked: Asked) -> Refusal | None:
    """No forcing while thinking; K3 may be told to call some tool, but not which."""
    choice = asked.body.get("tool_choice")
    if not (kimi_thinks(asked) and is_forced(asked)):
        return None
    named = isinstance(choice, dict)
    if asked.is_model("kimi-k3") and not named:
        return None
    word = "specified" if named else "required"
    return _plain(f"tool_choice '{word}' is incompatible with thinking enabled")


def kimi_always(asked: Asked) -> Refusal | None:
    """K2.7 thinks always."""
    if asked.is_model(r"kimi-k2\.7") and _thinking(asked) not in (None, "enabled"):
        return _plain("invalid thinking: only type=enabled is allowed for this model")
    return None


def kimi_both(asked: Asked) -> Refusal | None:
    """One switch, not two."""
    if asked.is_model("kimi-k2") and {"thinking", "reasoning_effort"} <= asked.body.keys():
        return _plain("cannot specify both 'thinking' and 'reasoning_effort'")
    return None


def kimi_back(asked: Asked) -> Refusal | None:
    """While thinking every reply with calls brings its reasoning."""
    if not kimi_thinks(asked):
        return None
    for at, message in _calling(asked):
        if not message.get("reasoning_content"):
            return _plain(
                "thinking is enabled but reasoning_content is missing in assistant tool call "
                f"message at index {at}"
            )
    return None


def zai_choice(asked: Asked) -> Refusal | None:
    """Nothing but auto."""
    choice = asked.body.get("tool_choice")
    return None if choice in (None, "auto") else _router("Tool choice must be auto")


def zai_empty_choice(asked: Asked) -> Refusal | None:
    """No choice where there is nothing to choose."""
    if "tool_choice" not in asked.body or asked.body.get("tools"):
        return None
    error = {"code": "1210", "message": "Invalid API parameter, please check the documentation."}
    return Refusal(status=400, body={"error": error})


def zai_always(asked: Asked) -> Refusal | None:
    """GLM-5.3 thinks always, and writes so much at most; the words are assumed."""
    if not asked.is_model(r"glm-5\.3"):
        return None
    if _thinking(asked) == "disabled":
        return _router("thinking.type must be enabled for this model")
    if (asked.body.get("max_tokens") or 0) > 131072:
        return _router("max_tokens must be in [1, 131072]")
    return None


# OpenAI.


def openai_efforts(table: Efforts) -> Check:
    """Return a check of a model's efforts; a model without any takes no reasoning at all."""

    def check(asked: Asked) -> Refusal | None:
        values, effort = _accepted(asked, table), effort_of(asked)
        param = "reasoning.effort" if asked.wire == "responses" else "reasoning_effort"
        if values is None or effort is None or effort in values:
            return None
        if not values:
            words = f"Unsupported parameter: '{param}' is not supported with this model."
            return _openai(words, param, "unsupported_parameter")
        words = (
            f"Unsupported value: '{effort}' is not supported with the '{asked.model}' model. "
            f"Supported values are: {_listed(values)}."
        )
        return _openai(words, param, "unsupported_value")

    return check


def openai_summary(asked: Asked) -> Refusal | None:
    """Who is not verified gets no summaries."""
    if not (asked.body.get("reasoning") or {}).get("summary"):
        return None
    words = f"Your organization must be verified to generate reasoning summaries. {_VERIFY}"
    return _openai(words, "reasoning.summary", "unsupported_value")


def openai_stream(asked: Asked) -> Refusal | None:
    """Who is not verified gets no streams of some models."""
    if not asked.body.get("stream") or not asked.is_model(r"gpt-5(-mini|-nano)?(-\d{4}|$)|^o3"):
        return None
    words = f"Your organization must be verified to stream this model. {_VERIFY}"
    return _openai(words, "stream", "unsupported_value")


def openai_pro(asked: Asked) -> Refusal | None:
    """gpt-5-pro speaks Responses, and never in pieces."""
    if not asked.is_model("gpt-5-pro"):
        return None
    if asked.wire == "completions":
        words = "This model is only supported in v1/responses and not in v1/chat/completions."
        return _openai(words, "model", None, status=404)
    if asked.body.get("stream"):
        words = "Unsupported value: 'stream' does not support true with this model."
        return _openai(words, "stream", "unsupported_value")
    return None


def openai_chat_tools(asked: Asked) -> Refusal | None:
    """The newest models do not reason and call functions in chat completions."""
    if asked.wire != "completions" or not asked.body.get("tools"):
        return None
    effort = effort_of(asked)
    words = f"Function tools with reasoning_effort are not supported for {asked.model} in "
    if asked.is_model(r"gpt-5\.[45]") and effort not in (None, "none"):
        words += "/v1/chat/completions. Please use /v1/responses instead."
        return _openai(words, "reasoning_effort")
    always = asked.is_model(r"astra|gpt-6\.1-sol")
    if asked.is_model(r"gpt-(5\.6|6)") and (always or effort != "none"):
        words += (
            "/v1/chat/completions. To use function tools, use /v1/responses or set "
            "reasoning_effort to 'none'."
        )
        return _openai(words, "reasoning_effort")
    return None


def openai_ids(asked: Asked) -> Refusal | None:
    """Ids of calls have at most 64 characters."""
    for where, call_id in _call_ids(asked):
        if len(call_id) > _LONGEST_ID:
            words = (
                f"Invalid '{where}': string too long. Expected a string with maximum length "
                f"{_LONGEST_ID}, but got a string with length {len(call_id)} instead."
            )
            return _openai(words, where, "string_above_max_length")
    return None


def _foreign(asked: Asked) -> str | None:
    """Return the first sealed reasoning that another provider made."""
    given = asked.body.get("input")
    for item in given if isinstance(given, list) else ():
        sealed = item.get("encrypted_content") if isinstance(item, dict) else None
        if sealed is not None and asked.issued.owner_of(sealed) != asked.owner:
            return str(sealed)
    return None


def openai_sealed(asked: Asked) -> Refusal | None:
    """Reasoning of others cannot be read."""
    sealed = _foreign(asked)
    if sealed is None:
        return None
    words = (
        f"The encrypted content {sealed[:4]}...{sealed[-4:]} could not be verified. Reason: "
        "Encrypted content could not be decrypted or parsed."
    )
    return _openai(words, None, "invalid_encrypted_content")


# xAI.


def xai_efforts(table: Efforts) -> Check:
    """Return a check of a model's efforts; the words are known for models that take none."""

    def check(asked: Asked) -> Refusal | None:
        values, effort = _accepted(asked, table), effort_of(asked)
        if values is None or effort is None or effort in values:
            return None
        words = f"Model {asked.model} does not support parameter reasoningEffort."
        if values:
            words = f"Invalid reasoning effort: {effort}. Supported: {', '.join(values)}"
        return _xai(words)

    return check


def xai_sealed(asked: Asked) -> Refusal | None:
    """Reasoning of others cannot be read."""
    if _foreign(asked) is None:
        return None
    return _xai(
        "Could not decrypt the provided encrypted_content. Ensure the value is the unmodified "
        "encrypted_content from a previous response."
    )


def xai_empty(asked: Asked) -> Refusal | None:
    """Every chat message says something, or calls."""
    for message in asked.messages:
        if not message.get("content") and not message.get("tool_calls"):
            return _xai(
                "Invalid request content: Each message must have at least one content element.",
                "Client specified an invalid argument",
            )
    return None


def xai_stop(asked: Asked) -> Refusal | None:
    """Reasoning models take no penalties and no stops; the words are assumed."""
    for name in ("presence_penalty", "frequency_penalty", "stop"):
        if name in asked.body:
            return _xai(f"Model {asked.model} does not support parameter {name}.")
    return None


# Anthropic.


def claude_unforced(asked: Asked) -> Refusal | None:
    """The newest models cannot be forced."""
    if claude.unforced(asked.model) and is_forced(asked):
        words = 'tool_choice: type "tool" and "any" are not supported for this model.'
        return _anthropic(words)
    return None


def _unsupported(kind: str) -> Refusal:
    return _anthropic(
        f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.'
    )


def claude_enabled(asked: Asked) -> Refusal | None:
    """Models that adapt take no budget."""
    adaptive = claude.adapts({"model": asked.model})
    return _unsupported("enabled") if adaptive and _thinking(asked) == "enabled" else None


def claude_disabled(asked: Asked) -> Refusal | None:
    """Models that always think cannot be kept from it; others not at the highest efforts."""
    if _thinking(asked) != "disabled":
        return None
    if claude.always_on(asked.model):
        return _unsupported("disabled")
    effort = (asked.body.get("output_config") or {}).get("effort")
    if claude.default_on(asked.model) and effort in ("xhigh", "max"):
        return _anthropic(f'"thinking.type.disabled" is not supported with effort "{effort}".')
    return None


def claude_controls(asked: Asked) -> Refusal | None:
    """The binding is only controlled with its header."""
    controls = (asked.body.get("thinking") or {}).get("block_binding")
    if controls is None or BINDING in asked.headers.get("anthropic-beta", ""):
        return None
    kind = _thinking(asked) or "adaptive"
    return _anthropic(f"thinking.{kind}.block_binding: Extra inputs are not permitted")


def claude_bound(asked: Asked) -> Refusal | None:
    """Signed thinking stays in the conversation it was made in."""
    controls = (asked.body.get("thinking") or {}).get("block_binding") or {}
    dropped = controls.get("prefix_mismatch_behavior") == "drop_block"
    if not claude.bound(asked.model) or dropped:
        return None
    at = asked.issued.torn(asked.body, asked.model)
    if at is None:
        return None
    return _anthropic(
        f"{at}: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation. Remove the block, or set "
        '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires '
        f"the `{BINDING}` value in the `anthropic-beta` header. The `system` prompt differs from "
        "the one this block was created with."
    )


# Gemini.


def _parts(asked: Asked, role: str) -> Iterator[list[dict[str, Any]]]:
    for content in asked.body.get("contents") or ():
        if content.get("role") == role:
            yield [part for part in content.get("parts") or () if isinstance(part, dict)]


def _google_thinking(asked: Asked) -> Mapping[str, Any]:
    config = asked.body.get("generationConfig") or asked.body.get("generation_config") or {}
    found = config.get("thinkingConfig") or config.get("thinking_config") or {}
    return found if isinstance(found, Mapping) else {}


def gemini_signature(asked: Asked) -> Refusal | None:
    """From Gemini 3 on the first call of every reply has the signature it came with."""
    if not asked.is_model("gemini-[3-9]"):
        return None
    position = 0
    for parts in _parts(asked, "model"):
        calls = [p for p in parts if "functionCall" in p or "function_call" in p]
        for place, part in enumerate(calls):
            position += 1
            call = part.get("functionCall") or part.get("function_call") or {}
            given = part.get("thoughtSignature") or part.get("thought_signature")
            if given is None and place == 0:
                return _google(
                    "Function call is missing a thought_signature in functionCall parts. This is "
                    "required for tools to work correctly, and missing thought_signature may lead "
                    "to degraded model performance. Additional data, function call "
                    f"default_api:{call.get('name')} , position {position}."
                )
            if given is not None and not _is_signature(asked, str(given)):
                return _google("Thought signature is not valid.")
    return None


def _is_signature(asked: Asked, given: str) -> bool:
    import base64

    dummy = base64.b64encode(_DUMMY.encode()).decode()
    return given in (_DUMMY, dummy) or asked.issued.owner_of(given) == asked.owner


def gemini_counts(asked: Asked) -> Refusal | None:
    """The calls of a turn are answered in the next."""
    contents = list(asked.body.get("contents") or ())
    for content, following in zip(contents, [*contents[1:], {}], strict=False):
        calls = _named(content, "functionCall", "function_call")
        if calls and len(_named(following, "functionResponse", "function_response")) != len(calls):
            return _google(
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
    return None


def _named(content: Mapping[str, Any], *names: str) -> list[Any]:
    return [part for part in content.get("parts") or () if any(name in part for name in names)]


def gemini_levels(table: Efforts) -> Check:
    """Return a check of thinking levels; a model without any takes none."""

    def check(asked: Asked) -> Refusal | None:
        thinking = _google_thinking(asked)
        level, values = thinking.get("thinkingLevel"), _accepted(asked, table)
        if level is None or values is None:
            return None
        if "thinkingBudget" in thinking:
            return _google("You can only set only one of thinking budget and thinking level.")
        if str(level).lower() not in values:
            return _google("Thinking level is not supported for this model.")
        return None

    return check


def gemini_budget(asked: Asked) -> Refusal | None:
    """Budgets of Gemini 2.5 are within limits."""
    budget = _google_thinking(asked).get("thinkingBudget")
    limits = {
        r"gemini-2\.5-flash-lite": (512, 24576),
        r"gemini-2\.5-flash": (0, 24576),
        r"gemini-2\.5-pro": (128, 32768),
    }
    found = next((pair for pattern, pair in limits.items() if asked.is_model(pattern)), None)
    if budget is None or found is None or budget == -1:
        return None
    if budget == 0 and found[0] > 0 and asked.is_model("pro"):
        return _google("Budget 0 is invalid. This model only works in thinking mode.")
    if budget and not found[0] <= budget <= found[1]:
        return _google(f"The thinking budget ({budget}) is invalid.")
    return None


# Groq, OpenRouter, vLLM, Ollama, Bedrock.


def groq_efforts(asked: Asked) -> Refusal | None:
    """Qwen takes none and default, gpt-oss three efforts (its words are assumed)."""
    effort = effort_of(asked)
    for pattern, values in (("qwen", ("none", "default")), ("gpt-oss", ("low", "medium", "high"))):
        if asked.is_model(pattern) and effort is not None and effort not in values:
            *first, last = [f"`{value}`" for value in values]
            return _plain(f"`reasoning_effort` must be one of {', '.join(first)} or {last}")
    return None


def groq_unanswered(asked: Asked, steps: Sequence[AnyStep]) -> Refusal | None:
    """A forced reply without a call is an error that has the text."""
    from mail.llm.script import Call, Say

    if not is_forced(asked) or any(isinstance(step, Call) for step in steps):
        return None
    text = "".join(step.text for step in steps if isinstance(step, Say))
    words = "Tool choice is required, but model did not call a tool"
    return _plain(words, code="tool_use_failed", failed_generation=text)


def router_both(asked: Asked) -> Refusal | None:
    """One way to say an effort, not two."""
    if {"reasoning", "reasoning_effort"} <= asked.body.keys():
        return _router('Only one of "reasoning" and "reasoning_effort" may be provided')
    return None


def router_unforced(asked: Asked) -> Refusal | None:
    """The newest Claude models cannot be forced here either."""
    if asked.is_model("^anthropic/") and claude.unforced(asked.model) and is_forced(asked):
        return _router('tool_choice: type "tool" and "any" are not supported for this model.')
    return None


def router_continued(asked: Asked) -> Refusal | None:
    """Reasoning is not asked for where the reply that goes on has lost its signed blocks."""
    adaptive = asked.is_model("^anthropic/") and claude.adapts({"model": asked.model})
    if not (adaptive and {"reasoning", "reasoning_effort"} & asked.body.keys()):
        return None
    messages = asked.messages
    if not messages or messages[-1].get("role") != "tool":
        return None
    last = [message for _, message in _calling(asked)][-1]
    if last.get("reasoning_details"):
        return None
    return _router(
        '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" '
        'and "output_config.effort" to control thinking behavior.'
    )


def router_zai(asked: Asked) -> Refusal | None:
    """Z.AI's rule, behind the router."""
    choice = asked.body.get("tool_choice")
    if not asked.is_model("^z-ai/") or choice in (None, "auto"):
        return None
    error = {"message": "Tool choice must be auto", "code": 400}
    return Refusal(status=400, body={"error": error | {"metadata": {"provider_name": "Z.AI"}}})


_ROUTED_HYBRIDS = r"^(deepseek/deepseek-v4|moonshotai/kimi-k2\.[56]|qwen/qwen3\.[5-9])"


def router_hybrid(asked: Asked) -> Refusal | None:
    """The makers' rules for models that think unless told not to, behind the router."""
    if not asked.is_model(_ROUTED_HYBRIDS) or effort_of(asked) == "none":
        return None
    words = ""
    if is_forced(asked):
        words = "Thinking mode does not support this tool_choice"
    elif not asked.is_model("^qwen/") and any(
        not message.get("reasoning_content") for _, message in _calling(asked)
    ):
        words = (
            "thinking is enabled but reasoning_content is missing in assistant tool call message"
        )
    if not words:
        return None
    error = {"message": words, "code": 400, "metadata": {"provider_name": "Maker"}}
    return Refusal(status=400, body={"error": error})


def vllm_harmony(asked: Asked) -> Refusal | None:
    """gpt-oss cannot be forced over Responses."""
    choice = asked.body.get("tool_choice")
    harmony = asked.wire == "responses" and asked.is_model("gpt-oss")
    if not harmony or choice in (None, "auto", "none"):
        return None
    return _openai(
        "Only 'auto' or 'none' tool_choice is supported in response API with Harmony",
        None,
        501,
        status=501,
        kind="NotImplementedError",
    )


_THINKING_NAMES = "gpt-oss|qwen3|deepseek-r1|magistral"
_TOOLLESS_NAMES = "gemma:|tinyllama"


def ollama_thinks(asked: Asked) -> bool:
    """Whether a local model thinks: if it can, and is not told otherwise."""
    return asked.is_model(_THINKING_NAMES) and asked.body.get("think") is not False


def ollama_think(asked: Asked) -> Refusal | None:
    """Thinking is for those who can, and levels are gpt-oss's."""
    think = asked.body.get("think")
    if think in (None, False):
        return None
    if not asked.is_model(_THINKING_NAMES):
        return _ollama(f'"{asked.model}" does not support thinking')
    if think is True:
        return None
    if think not in ("high", "medium", "low", "max"):
        words = 'must be "high", "medium", "low", "max", true, or false'
        return _ollama(f'invalid think value: "{think}" ({words})')
    if not asked.is_model("gpt-oss"):
        return _ollama(f'think value "{think}" is not supported for this model')
    return None


def ollama_tools(asked: Asked) -> Refusal | None:
    """Not every model knows tools; the words are assumed."""
    if asked.body.get("tools") and asked.is_model(_TOOLLESS_NAMES):
        return _ollama(f"registry.ollama.ai/library/{asked.model} does not support tools")
    return None


def ollama_generate(asked: Asked) -> Refusal | None:
    """Plain generation knows no tools at all: nobody here is to use it."""
    return _ollama("this test server speaks /api/chat only") if "prompt" in asked.body else None


def ollama_choice(asked: Asked) -> Refusal | None:
    """There is no tool choice; LiteLLM takes it out because such requests hang."""
    return _ollama("tool_choice is unknown") if "tool_choice" in asked.body else None


def bedrock_unforced(asked: Asked) -> Refusal | None:
    """The newest Claude models cannot be forced here either."""
    if not claude.unforced(asked.model.replace("anthropic.", "")) or _bedrock_choice(asked) is None:
        return None
    return _bedrock(
        'The model returned the following errors: tool_choice: type "tool" and "any" are not '
        "supported for this model."
    )


def bedrock_choices(asked: Asked) -> Refusal | None:
    """The first Nova models could not be forced, and Mistral only to call any tool."""
    kind = _bedrock_choice(asked)
    able = not asked.is_model("nova-(pro|lite|micro)")
    if kind is None or (able and not (kind == "tool" and asked.is_model("mistral"))):
        return None
    name = f"toolConfig.toolChoice.{kind}"
    return _bedrock(f"This model doesn't support the {name} field. Remove {name} and try again.")


def bedrock_oss(asked: Asked) -> Refusal | None:
    """gpt-oss takes no Anthropic thinking."""
    extra = asked.body.get("additionalModelRequestFields") or {}
    if "thinking" not in extra or not asked.is_model("gpt-oss"):
        return None
    return _bedrock(
        "The model returned the following errors: Failed to deserialize the JSON body into the "
        "target type: thinking: unknown field thinking, expected one of `messages`, `model`"
    )


def bedrock_mixed(asked: Asked) -> Refusal | None:
    """Llama and Mistral take text neither behind the results of tools nor beside calls."""
    if not asked.is_model("llama|mistral"):
        return None
    for at, message in enumerate(asked.messages):
        kinds = {kind for block in message.get("content") or () for kind in block}
        for kind, named in (("toolResult", "tool result"), ("toolUse", "tool use")):
            if {"text", kind} <= kinds:
                return _bedrock(
                    f"messages.{at}.content: Conversation blocks and {named} blocks cannot be "
                    "provided in the same turn."
                )
    return None


def bedrock_streams(asked: Asked) -> Refusal | None:
    """Llama calls tools only in whole replies."""
    if asked.streamed and asked.body.get("toolConfig") and asked.is_model("llama"):
        return _bedrock("This model doesn't support tool use in streaming mode.")
    return None


def by_bedrock(refusal: Refusal) -> Refusal:
    """Return a refusal of Claude's as Bedrock hands it on."""
    return _bedrock(f"The model returned the following errors: {refusal.text}")


def _bedrock_choice(asked: Asked) -> str | None:
    choice = (asked.body.get("toolConfig") or {}).get("toolChoice") or {}
    return next((kind for kind in ("any", "tool") if kind in choice), None)


# A proxy.


def proxy_forced(asked: Asked) -> Refusal | None:
    """Without drop_params the proxy refuses what its table says the model cannot do."""
    forced = claude.unforced(asked.model) and is_forced(asked)
    if not forced or asked.body.get("drop_params"):
        return None
    words = (
        f"litellm.UnsupportedParamsError: {asked.model} does not support forced tool use "
        "(tool_choice='required' or a named tool). Use tool_choice='auto' and tell the model in "
        "the prompt when to call the tool, or set `litellm.drop_params = True`."
    )
    error = {"message": words, "type": "None", "param": "None", "code": "400"}
    return Refusal(status=400, body={"error": error})


def proxy_params(asked: Asked) -> Refusal | None:
    """A parameter that its table does not know is refused by its name."""
    if "reasoning_effort" not in asked.body or not asked.is_model("gpt-4o|llama"):
        return None
    words = (
        "litellm.UnsupportedParamsError: openai does not support parameters: "
        f"['reasoning_effort'], for model={asked.model}. To drop these, set "
        "`litellm.drop_params=True`."
    )
    error = {"message": words, "type": "None", "param": "None", "code": "400"}
    return Refusal(status=400, body={"error": error})
