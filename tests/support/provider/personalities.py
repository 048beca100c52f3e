"""Providers as they are in the wild: what each refuses, how it writes, and where that is known.

A `FakeProvider` speaks for all of them at once, each below its own path: a request to
``provider.root_of("mistral")`` is answered as Mistral would. Without such a path it is answered by
the personality of the server, which by default has no rules beyond those of its wire format.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.support.provider import thinking as claude
from tests.support.provider import validate_profiles as check
from tests.support.provider.steps import AnyStep
from tests.support.provider.validate_completions import OPENAI, Dialect
from tests.support.provider.validate_profiles import Asked, Check, Efforts, Refusal
from tests.support.provider.wire import Traits

__all__ = ["PERSONALITIES", "PLAIN", "Personality", "Rule", "quota_failure", "wrapped"]


_USUAL = Traits()


@dataclass(frozen=True, slots=True)
class Rule:
    """What a provider refuses: the check, where it is known from, and when that was written.

    ``assumed`` says that the rule is known but not the provider's words.
    """

    check: Check
    source: str
    date: str
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Personality:
    """A provider.

    Args:
        name: Its name, also in its path.
        rules: What it refuses, in the order in which it looks.
        dialect: How its chat completions differ from OpenAI's.
        traits: How it writes its replies.
        thinks: Whether a request makes the model think; otherwise its thoughts leave no trace.
        unanswered: Looks at a reply that the model made, which the provider may refuse to send.
        address: The environment variable that holds its address for LiteLLM, and what the
            address ends in.
        proxied: Whether Claude's requests are sent on to Anthropic.
        inner: What whoever is behind it refuses of a request that is sent on.
        handed: How it hands such a refusal on.
    """

    name: str
    rules: Sequence[Rule] = ()
    dialect: Dialect = OPENAI
    traits: Traits = _USUAL
    thinks: Callable[[Asked], bool] = lambda asked: True
    unanswered: Callable[[Asked, Sequence[AnyStep]], Refusal | None] = lambda asked, steps: None
    address: tuple[str, str] = ("", "/v1")
    proxied: bool = False
    inner: Sequence[Rule] = ()
    handed: Callable[[Refusal], Refusal] = lambda refusal: refusal

    def refusal(self, asked: Asked) -> Refusal | None:
        """Return the answer to a request that the provider refuses."""
        return _first(self.rules, asked)

    def refused_behind(self, asked: Asked) -> Refusal | None:
        """Return the answer to a request that whoever is behind the provider refuses."""
        refusal = _first(self.inner, asked)
        return None if refusal is None else self.handed(refusal)


def _first(rules: Sequence[Rule], asked: Asked) -> Refusal | None:
    found = (rule.check(asked) for rule in rules)
    return next((refusal for refusal in found if refusal is not None), None)


def quota_failure(delay: str | None = "2.2s") -> dict[str, Any]:
    """Return Gemini's body of a 429: when to try again, or that the day's quota is used up.

    Source: dcdpr/jp#1061 (2026-09-03), lettertrace#34 (2026-07-28).
    """
    kind = "type.googleapis.com/google.rpc"
    detail: dict[str, Any] = {"@type": f"{kind}.RetryInfo", "retryDelay": delay}
    if delay is None:
        violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
        detail = {"@type": f"{kind}.QuotaFailure", "violations": [violation]}
    words = "You exceeded your current quota, please check your plan and billing details."
    error = {"code": 429, "message": words, "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    return {"error": error}


def wrapped(refusal: Refusal) -> Refusal:
    """Return Anthropic's refusal as a LiteLLM proxy hands it on (BerriAI/litellm#39151)."""
    words = f"litellm.BadRequestError: AnthropicException - {json.dumps(refusal.body)}"
    error = {"message": words, "type": "None", "param": "None", "code": str(refusal.status)}
    return Refusal(status=refusal.status, body={"error": error})


_LOW = ("low", "medium", "high")
OPENAI_EFFORTS: Efforts = MappingProxyType(
    {
        r"gpt-5-pro": ("high",),
        r"gpt-5-chat": (),
        r"chat-latest": ("medium",),
        r"codex": _LOW,
        r"gpt-(5\.\d|6)\S*-pro": ("medium", "high", "xhigh"),
        r"astra|gpt-6\.1-sol": (*_LOW, "xhigh", "max"),
        r"gpt-(5\.6|6)": ("none", *_LOW, "xhigh", "max"),
        r"gpt-5\.[245]": ("none", *_LOW, "xhigh"),
        r"gpt-5\.1": ("none", *_LOW),
        r"gpt-5": ("minimal", *_LOW),
        r"^o[134]": _LOW,
    }
)
XAI_EFFORTS: Efforts = MappingProxyType(
    {
        r"multi-agent": (*_LOW, "xhigh"),
        r"grok-4\.3": ("none", *_LOW),
        r"grok-4\.5|grok-build-latest": ("minimal", *_LOW, "xhigh"),
        r"grok-4\.[67]": ("minimal", *_LOW, "xhigh"),
        r"grok": (),
    }
)
GEMINI_LEVELS: Efforts = MappingProxyType(
    {
        r"gemini-3\.[78]-flash|gemini-4": _LOW,
        r"gemini-3\S*-flash": ("minimal", *_LOW),
        r"gemini-3": _LOW,
        r"gemini-2": (),
    }
)

_OPENAI = (
    Rule(check.openai_pro, "chatwise#1122, docker-agent#313, litellm PR 9419", "2025-10-23"),
    Rule(
        check.openai_chat_tools,
        "pipecat#4043, openai-openapi#541; litellm PR 34569, community.openai.com 1386454",
        "2026-11-12",
    ),
    Rule(
        check.openai_efforts(OPENAI_EFFORTS),
        "models.dev PR 331 and 2351, big-AGI#1159, langchain PR 40330; one-api#120 (no effort)",
        "2026-09-09",
    ),
    Rule(check.openai_ids, "ungate#26, fastllm#45, langmanus#119", "2026-07-15"),
    Rule(check.openai_sealed, "openclaw#126299", "2026-08-19"),
)
_UNVERIFIED = (
    Rule(
        check.openai_summary,
        "continue#9854, software-agent-sdk#987, windmill PR 10147",
        "2026-07-16",
    ),
    Rule(check.openai_stream, "lobehub#9385, help.openai.com 10910291", "2025-09-22"),
)
_ANTHROPIC = (
    Rule(
        check.claude_unforced,
        "platform.claude.com What's new Opus 5.5 and Sonnet 5.5; litellm PR 39151",
        "2026-09-28",
    ),
    Rule(check.claude_enabled, "free-code#32, Operit PR 568", "2026-05-30"),
    Rule(check.claude_disabled, "platform.claude.com What's new Opus 5.5", "2026-09-22"),
    Rule(check.claude_controls, "sub2api PR 6677, litellm PR 41203", "2026-09-05"),
)
_BOUND = Rule(
    check.claude_bound,
    "platform.claude.com Preserved thinking; measured in pydantic-ai#7984",
    "2026-09-01",
)
_MISTRAL = (
    Rule(
        check.mistral_extra,
        "litellm#30835, crush#1590; the shape: mistralai_client_dart#44",
        "2026-06-19",
    ),
    Rule(
        check.mistral_order,
        "mistral-common validator.py@039465db; zed#37021, mistral-vibe#1114",
        "2026-09-19",
    ),
    Rule(check.mistral_empty, "mistral-common validator.py@039465db", "2026-09-19"),
    Rule(check.mistral_ids, "mistral-common validator.py; ironclaw#1241, gptel#1203", "2026-03-16"),
    Rule(check.mistral_counts, "mistral-common validator.py@039465db", "2026-09-19"),
    Rule(check.mistral_last, "mistral-common validator.py@039465db", "2026-09-19"),
    Rule(check.mistral_effort, "models.dev PR 2111", "2026-06-10", assumed=True),
)
_NIM_EXTRA = Rule(check.nim_extra, "openclaude#1950, kimi-cli#2534, hermes PR 77973", "2026-08-03")
_PARSERLESS = Rule(check.nim_auto, "vllm#9986, QwenPaw#1449, jarvis#195", "2026-05-14")
_DEEPSEEK = (
    Rule(check.deepseek_choice, "DeepSeek-V3#1376, litellm PR 37470, eino#994", "2026-08-21"),
    Rule(check.deepseek_back, "LibreChat#12836, #13366; DeepSeek-V3#1376", "2026-08-03"),
    Rule(check.deepseek_shape, "awesome-deepseek-agent docs/oh-my-pi.md", "2026-07-21", True),
)
_QWEN = (
    Rule(check.qwen_choice, "eino#994, qwen-code#7659, agentscope#1608", "2026-09-07"),
    Rule(check.qwen_stream, "anything-llm#3933, llxprt#229", "2025-06-01"),
)
_KIMI = (
    Rule(check.kimi_choice, "oh-my-pi#827, #1077; inspect_ai PR 5152", "2026-08-31"),
    Rule(check.kimi_always, "oh-my-pi#3852, platform.kimi.com K2.7", "2026-06-30"),
    Rule(check.kimi_both, "nanobot#3939", "2026-05-20"),
    Rule(check.kimi_back, "continue#11600, mastra#12592", "2026-03-18"),
)
_XAI = (
    Rule(
        check.xai_efforts(XAI_EFFORTS),
        "hermes-agent#23435, grok2api#814, llmgateway#3669, modelparams.dev#330; the words for "
        "models that take some efforts are assumed",
        "2026-08-31",
    ),
    Rule(check.xai_sealed, "openclaw#126299", "2026-08-19"),
    Rule(check.xai_empty, "langchain#34140, AstrBot#6447", "2026-03-16"),
    Rule(check.xai_stop, "docs.x.ai reasoning", "2026-06-22", assumed=True),
)
_ZAI = (
    Rule(check.zai_empty_choice, "oh-my-openagent#6753", "2026-08-11"),
    Rule(check.zai_choice, "hindsight#4246, AstrBot#7177, java.agentscope.io", "2026-09-09"),
    Rule(check.zai_always, "dev.to/aihubmix", "2026-08-14", assumed=True),
)
_GEMINI = (
    Rule(check.gemini_counts, "ai.google.dev function calling", "2026-06-01"),
    Rule(check.gemini_signature, "goose#5792, Roo-Code#9499", "2025-12-01"),
    Rule(
        check.gemini_levels(GEMINI_LEVELS),
        "docs.rs adk-model ThinkingLevel, discuss.ai.google.dev/t/112648; LiteLLM's table",
        "2026-11-22",
        assumed=True,
    ),
    Rule(check.gemini_budget, "Roo-Code#4399, chatluna#519, neurolink#1707", "2026-06-01"),
)
_GROQ = (
    Rule(
        check.groq_efforts,
        "pi#1745, free-claude-code#1348, modelparams.dev#114; GoModel#946",
        "2026-09-11",
    ),
)
_ROUTER = (
    Rule(check.router_both, "openclaw#24119", "2026-02-24"),
    Rule(check.router_unforced, "ouroboros#716, oh-my-pi#12939, vercel/ai#21364", "2026-09-23"),
    Rule(check.router_continued, "hermes-agent#43012, #43436", "2026-06-10"),
    Rule(check.router_zai, "hindsight#4246", "2026-09-09"),
    Rule(
        check.router_hybrid,
        "pi#987, pi#5309, opencode#29690, osaurus PR 1940, DeepSeek-V3#1376, oh-my-pi#886",
        "2026-07-08",
    ),
)
_OLLAMA = (
    Rule(check.ollama_generate, "the library's own path for ollama/, without tools", "2026-11-23"),
    Rule(check.ollama_choice, "LiteLLM llms/ollama/chat/transformation.py", "2026-11-23", True),
    Rule(
        check.ollama_think,
        "openclaude#1371, agentscope#1099, ollama#17837, claude-code-router#1093",
        "2026-08-19",
    ),
    Rule(check.ollama_tools, "ollama.com/search?c=tools", "2026-08-19", assumed=True),
)
_BEDROCK = (
    Rule(check.bedrock_unforced, "vercel/ai#21364, stdapi#284", "2026-09-22"),
    Rule(check.bedrock_choices, "vercel/ai#4396; AWS API_runtime_ToolChoice", "2025-01-14"),
    Rule(check.bedrock_oss, "langchain-aws#1278", "2026-09-11"),
    Rule(check.bedrock_streams, "harness-sdk#3882", "2026-08-19"),
    Rule(
        check.bedrock_mixed,
        "harness-sdk#1223, quarkus-langchain4j#1983, langchain-aws#1118",
        "2026-06-22",
    ),
)
_BEDROCK_CLAUDE = (
    Rule(check.claude_enabled, "langchain-aws#1141, free-code#32", "2026-07-02"),
    Rule(check.claude_disabled, "platform.claude.com What's new Opus 5.5", "2026-09-22"),
    Rule(check.claude_controls, "sub2api PR 6677, litellm PR 41203", "2026-09-05"),
    Rule(
        check.claude_bound,
        "docs.aws.amazon.com claude-messages-thinking-block-binding; pydantic-ai#7984",
        "2026-09-01",
    ),
)
_PROXY = (
    Rule(check.proxy_forced, "LiteLLM llms/anthropic/common_utils.py; litellm#39151", "2026-08-18"),
    Rule(check.proxy_params, "litellm#9892, #40714", "2026-09-11"),
)
_REASONING = Dialect(keys=frozenset({"reasoning_content"}))


def _router_thinks(asked: Asked) -> bool:
    """Claude with a budget drops its reasoning when it is forced (pydantic-ai#6916)."""
    fixed = asked.is_model("^anthropic/") and not claude.adapts({"model": asked.model})
    wanted = bool({"reasoning", "reasoning_effort"} & asked.body.keys())
    return wanted and not (fixed and check.is_forced(asked))


def _made(*all_of_them: Personality) -> Mapping[str, Personality]:
    return MappingProxyType({one.name: one for one in all_of_them})


PLAIN = Personality(name="")
"""No provider in particular: only the rules of the wire formats."""

PERSONALITIES = _made(
    Personality(name="openai", rules=_OPENAI, address=("OPENAI_BASE_URL", "/v1")),
    Personality(
        name="openai-unverified",
        rules=(*_OPENAI, *_UNVERIFIED),
        address=("OPENAI_BASE_URL", "/v1"),
    ),
    Personality(name="anthropic", rules=_ANTHROPIC, address=("ANTHROPIC_API_BASE", "")),
    Personality(
        name="anthropic-bound",
        rules=(*_ANTHROPIC, _BOUND),
        address=("ANTHROPIC_API_BASE", ""),
    ),
    Personality(
        name="mistral",
        rules=_MISTRAL,
        dialect=Dialect(choices=frozenset({"any"})),
        traits=Traits(ids="nine", whole_calls=True),
        thinks=lambda asked: False,
        address=("MISTRAL_AZURE_API_BASE", "/v1"),
    ),
    Personality(
        name="nim",
        rules=(_NIM_EXTRA, _MISTRAL[1]),
        address=("NVIDIA_NIM_API_BASE", "/v1"),
    ),
    Personality(
        name="nim-bare",
        rules=(_NIM_EXTRA, _PARSERLESS),
        address=("NVIDIA_NIM_API_BASE", "/v1"),
    ),
    Personality(
        name="deepseek",
        rules=_DEEPSEEK,
        dialect=_REASONING,
        traits=Traits(comment="keep-alive"),
        thinks=check.deepseek_thinks,
        address=("DEEPSEEK_API_BASE", "/v1"),
    ),
    Personality(
        name="qwen",
        rules=_QWEN,
        dialect=_REASONING,
        thinks=check.qwen_thinks,
        address=("DASHSCOPE_API_BASE", "/v1"),
    ),
    Personality(
        name="kimi",
        rules=_KIMI,
        dialect=_REASONING,
        thinks=check.kimi_thinks,
        address=("MOONSHOT_API_BASE", "/v1"),
    ),
    Personality(
        name="xai",
        rules=_XAI,
        dialect=_REASONING,
        traits=Traits(whole_calls=True),
        address=("XAI_API_BASE", "/v1"),
    ),
    Personality(
        name="zai",
        rules=_ZAI,
        dialect=_REASONING,
        traits=Traits(whole_calls=True),
        address=("ZAI_API_BASE", "/v1"),
    ),
    Personality(name="gemini", rules=_GEMINI, address=("GEMINI_API_BASE", "")),
    Personality(
        name="groq",
        rules=_GROQ,
        dialect=Dialect(keys=frozenset({"reasoning"})),
        traits=Traits(thoughts="reasoning"),
        unanswered=check.groq_unanswered,
        address=("GROQ_API_BASE", "/v1"),
    ),
    Personality(
        name="openrouter",
        rules=_ROUTER,
        dialect=Dialect(keys=frozenset({"reasoning", "reasoning_content", "reasoning_details"})),
        traits=Traits(thoughts="reasoning", comment="OPENROUTER PROCESSING"),
        thinks=_router_thinks,
        address=("OPENROUTER_API_BASE", "/v1"),
    ),
    Personality(
        name="vllm",
        rules=(Rule(check.vllm_harmony, "vllm#53626, #23227", "2026-08-24"),),
        dialect=Dialect(keys=frozenset({"reasoning", "reasoning_content"})),
        address=("HOSTED_VLLM_API_BASE", "/v1"),
    ),
    Personality(
        name="vllm-bare",
        rules=(_PARSERLESS,),
        dialect=Dialect(keys=frozenset({"reasoning", "reasoning_content"})),
        address=("HOSTED_VLLM_API_BASE", "/v1"),
    ),
    Personality(
        name="ollama", rules=_OLLAMA, thinks=check.ollama_thinks, address=("OLLAMA_API_BASE", "")
    ),
    Personality(
        name="proxy",
        rules=_PROXY,
        traits=Traits(comment="ping"),
        address=("LITELLM_PROXY_API_BASE", "/v1"),
        proxied=True,
        inner=_ANTHROPIC,
        handed=wrapped,
    ),
    Personality(
        name="bedrock",
        rules=_BEDROCK,
        address=("AWS_BEDROCK_RUNTIME_ENDPOINT", ""),
        inner=_BEDROCK_CLAUDE,
        handed=check.by_bedrock,
    ),
)
