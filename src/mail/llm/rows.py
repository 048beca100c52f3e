"""The table of models: what providers document, or users report, that each accepts and refuses.

The first row that fits a model counts. Rows of hosts, which refuse things of their own, come before
those of makers. `mail.llm.profiles.Profile` says what the fields mean.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: which models it is about, and what is known of them.

    Attributes:
        id: Its name.
        example: The name of one of its models.
        models: All of them in words, for people.
        provider: A pattern of the whole name of LiteLLM's provider, in lower case.
        model: A pattern of a part of the model's name without provider and proxy, in lower case.
        fields: Fields of a `mail.llm.profiles.Profile`.
        source: Where the facts come from.
        checked: When they were looked up (ISO date).
        tested: How the row is tested: against a strict ``fake`` provider, or by the ``request``.
    """

    id: str
    example: str
    models: str
    provider: str = ".*"
    model: str = ""
    fields: Mapping[str, Any]
    source: str
    checked: str = "2026-11-23"
    tested: Literal["fake", "request"] = "fake"

    def fits(self, provider: str, name: str) -> bool:
        """Tell whether the row is about a model."""
        if re.fullmatch(self.provider, provider.lower()) is None:
            return False
        return re.search(self.model, name.lower()) is not None


_BRIDGE: Final = "(noted)"
_TO_HIGH: Final = ("low", "medium", "high")
_TO_MAX: Final = ("low", "medium", "high", "xhigh", "max")
_FORCED_AUTO: Final = {"forced_any": "auto", "forced_named": "auto"}
_FORCED_SILENT: Final = {"forced_any": "unless_thinking", "forced_named": "off"}
_FORCED_OK: Final = {"forced_any": "ok", "forced_named": "ok"}
_UNLESS_THINKING: Final = {"forced_any": "unless_thinking", "forced_named": "unless_thinking"}
_DISABLED: Final = {"thinking": {"type": "disabled"}}
_LOADS: Final = {"silence": 300.0, "total": 1200.0}
_LONG: Final = {"silence": 600.0, "total": 1800.0}

_MISTRAL_NAMES: Final = "(mistral|ministral|magistral|devstral|codestral|mixtral)"
_MISTRAL: Final = {
    "wire": "completions",
    "forced_any": "ok",
    "forced_named": "one",
    "bridge": _BRIDGE,
    "call_id": "nine",
}
_MISTRAL_SOURCE: Final = (
    "mistral-common protocol/instruct/validator.py; zed#37021; mistral-vibe#1114; litellm#30835"
)

_BOUND_NAMES: Final = r"claude-(opus-5[.-]5|sonnet-5[.-]5|(fable|mythos)-5[.-][12])(?!\d)"
_NEWER_CLAUDE: Final = r"claude-[a-z]+-(5[.-][1-9](?!\d)|([6-9]|[1-9]\d)(?!\d{5}))"
_BINDING: Final = {"block_binding": "drop_block"}
_CLAUDE_ALWAYS: Final = {
    **_FORCED_AUTO,
    "thinks": "always",
    "effort_via": "adaptive",
    "efforts": _TO_MAX,
    "send_back": "always",
}
_CLAUDE_DEFAULT: Final = {
    "forced_any": "unless_thinking",
    "forced_named": "off",
    "thinks": "default",
    "off_switch": _DISABLED,
    "effort_via": "adaptive",
    "efforts": _TO_MAX,
    "send_back": "thinking",
}
_CLAUDE_ASKED: Final = {"effort_via": "adaptive", "efforts": _TO_MAX}
_APART: Final = {"wire": "completions", "bridge": _BRIDGE, "lone_calls": True}
_BEDROCK_ADAPTIVE: Final = {
    **_FORCED_OK,
    **_CLAUDE_ASKED,
    "thinks": "asked",
    "send_back": "always",
}
_PRESERVED: Final = "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking"
_FORCED_ADAPTIVE: Final = (
    "https://platform.claude.com/docs/en/build-with-claude/thinking; llm-exe#721; pydantic-ai#7195"
)
"""Claude may be forced to call a tool while it thinks, if it decides itself how long. Who asks for
an effort wants thoughts, though, and nothing tells whether a forced call has any."""
_WHATS_NEW: Final = (
    "https://platform.claude.com/docs/en/models/opus-5-5/whats-new-opus-5-5; litellm#39151"
)

_XAI: Final = {
    **_FORCED_OK,
    "thinks": "always",
    "send_back": "always",
    "summary": False,  # it sends one anyway
    "store": False,
}
_XAI_EFFORT: Final = {**_XAI, "effort_via": "reasoning"}
_XAI_DOCS: Final = "https://docs.x.ai/developers/model-capabilities/text/reasoning"

_ZAI_BODY: Final = {
    "extra_body": {"thinking": {"type": "enabled", "clear_thinking": False}, "tool_stream": True}
}
_ZAI: Final = {**_FORCED_AUTO, "wire": "completions", "effort_via": "none"}
_ZAI_THINKS: Final = {**_ZAI, "send_back": "always", "on_switch": _ZAI_BODY, **_LONG}
_ZAI_SOURCE: Final = "hindsight#4246; https://docs.z.ai/guides/capabilities/thinking-mode"

_GEMINI: Final = {**_FORCED_OK, "signed_ids": True, "send_back": "thinking", "thinks": "always"}
_GEMINI_LEVEL: Final = {**_GEMINI, "effort_via": "reasoning_effort"}
_GEMINI_BUDGET: Final = {**_GEMINI, "effort_via": "thinking_budget"}
_GEMINI_HOSTS: Final = "gemini|vertex_ai(_beta)?"
_GEMINI_SOURCE: Final = "https://cloud.google.com/vertex-ai/generative-ai/docs/thinking"

_ROUTED: Final = {"wire": "completions", "send_back": "always"}
_ROUTED_EFFORT: Final = {
    "thinks": "asked",
    "effort_via": "extra_body:reasoning.effort",
    "forced_any": "ok",
    "forced_named": "ok",
}
_ROUTED_HYBRID: Final = {
    **_ROUTED,
    **_FORCED_SILENT,
    "thinks": "default",
    "off_switch": {"extra_body": {"reasoning": {"effort": "none"}}},
    "effort_via": "extra_body:reasoning.effort",
    "silence": 300.0,
}
_ROUTER_DOCS: Final = "https://openrouter.ai/docs/api-reference"
_ROUTER_THINKING: Final = "https://openrouter.ai/docs/use-cases/reasoning-tokens"

_EFFORT_ONLY: Final = {**_FORCED_OK, "wire": "completions", "effort_via": "reasoning_effort"}

_OPENAI_HOSTS: Final = "openai|azure"
_GPT: Final = {"effort_via": "reasoning"}
_GPT_RESPONSES: Final = {**_GPT, "chat_tools": False}
_GPT_LONG: Final = {**_GPT_RESPONSES, "thinks": "always", "silence": 600.0, "total": 3600.0}
_OPENAI_EFFORTS: Final = "https://models.dev; big-AGI#1159; opencode#26268"

_HOSTS: Final = (
    # --- OpenRouter: the maker of the model decides ---------------------------------------------
    Row(
        id="openrouter-claude-bound",
        example="openrouter/anthropic/claude-opus-5.5",
        models="Claude Opus/Sonnet 5.5, Fable/Mythos 5.1 and 5.2",
        provider="openrouter",
        model=_BOUND_NAMES,
        fields={
            **_ROUTED,
            **_FORCED_AUTO,
            "thinks": "always",
            "effort_via": "extra_body:verbosity",
            "efforts": _TO_MAX,
            "send_back": "never",
            "cache_marks": True,
        },
        source="ouroboros#716; vercel/ai#21364; hermes-agent#43436",
    ),
    Row(
        id="openrouter-claude-adaptive",
        example="openrouter/anthropic/claude-opus-4.8",
        models="Claude Opus 4.6 and later, the Claude 5 family",
        provider="openrouter",
        model=r"claude-((opus|sonnet)-4[.-][6-9]|[a-z]+-([5-9]|[1-9]\d)(?!\d))",
        fields={
            **_ROUTED,
            **_UNLESS_THINKING,
            "thinks": "asked",
            "effort_via": "extra_body:verbosity",
            "efforts": _TO_MAX,
            "send_back": "never",
            "cache_marks": True,
        },
        source="pydantic-ai#6916; hermes-agent#43012",
    ),
    Row(
        id="openrouter-claude",
        example="openrouter/anthropic/claude-sonnet-4.5",
        models="other Claude models",
        provider="openrouter",
        model="claude",
        fields={
            **_ROUTED,
            **_UNLESS_THINKING,
            "thinks": "asked",
            "effort_via": "extra_body:reasoning.max_tokens",
            "send_back": "never",
            "cache_marks": True,
        },
        source="pydantic-ai#6957; openclaw#24119",
    ),
    Row(
        id="openrouter-zai",
        tested="request",
        example="openrouter/z-ai/glm-5",
        models="GLM",
        provider="openrouter",
        model="^z-ai/",
        fields={
            **_ROUTED,
            **_FORCED_AUTO,
            "thinks": "asked",
            "effort_via": "extra_body:reasoning.effort",
        },
        source="hindsight#4246",
    ),
    Row(
        id="openrouter-gemini",
        tested="request",
        example="openrouter/google/gemini-3-pro-preview",
        models="Gemini",
        provider="openrouter",
        model="^google/",
        fields={**_ROUTED, **_ROUTED_EFFORT, "cache_marks": True},
        source=f"pydantic-ai#6916; {_ROUTER_DOCS}",
    ),
    Row(
        id="openrouter-mistral",
        tested="request",
        example="openrouter/mistralai/mistral-medium-3.5",
        models="Mistral",
        provider="openrouter",
        model=_MISTRAL_NAMES,
        fields={**_ROUTED, **_ROUTED_EFFORT, **_MISTRAL},
        source=_MISTRAL_SOURCE,
    ),
    Row(
        id="openrouter-openai",
        tested="request",
        example="openrouter/openai/gpt-5.5",
        models="GPT",
        provider="openrouter",
        model="^openai/(?!gpt-oss)",
        fields={**_FORCED_OK, "thinks": "asked", "effort_via": "reasoning"},
        source=f"{_ROUTER_DOCS}/responses",
    ),
    Row(
        id="openrouter-xai",
        tested="request",
        example="openrouter/x-ai/grok-4.5",
        models="Grok",
        provider="openrouter",
        model="^x-ai/",
        fields={
            **_FORCED_OK,
            "thinks": "always",
            "effort_via": "reasoning",
            "efforts": _TO_HIGH,
        },
        source=f"{_ROUTER_DOCS}/responses",
    ),
    Row(
        id="openrouter-deepseek",
        example="openrouter/deepseek/deepseek-v4-pro",
        models="DeepSeek V4",
        provider="openrouter",
        model="^deepseek/deepseek-(v4|flash)",
        fields={
            **_ROUTED_HYBRID,
            **_LONG,
            "fill_reasoning": True,
            "omit_auto": True,
            "null_content": False,
        },
        source=f"{_ROUTER_THINKING}; opencode#25086; osaurus#1940; xagent#1532; DeepSeek-V3#1376",
    ),
    Row(
        id="openrouter-kimi",
        example="openrouter/moonshotai/kimi-k2.6",
        models="Kimi K2.5 and K2.6",
        provider="openrouter",
        model=r"^moonshotai/kimi-k2[.-][56]",
        fields={
            **_ROUTED_HYBRID,
            "fill_reasoning": True,
            "null_content": False,
        },
        source=f"{_ROUTER_THINKING}; pi#987; pi#5309; opencode#29690; oh-my-pi#1077",
    ),
    Row(
        id="openrouter-kimi-always",
        tested="request",
        example="openrouter/moonshotai/kimi-k2.7-code",
        models="Kimi K2.7",
        provider="openrouter",
        model=r"^moonshotai/kimi-k2[.-]7",
        fields={
            **_ROUTED,
            **_FORCED_AUTO,
            "thinks": "always",
            "effort_via": "none",
            "fill_reasoning": True,
            "null_content": False,
            "silence": 300.0,
        },
        source="oh-my-pi#3852; pi#5309; flocks#620",
    ),
    Row(
        id="openrouter-qwen",
        example="openrouter/qwen/qwen3.7-plus",
        models="Qwen 3.5 and later",
        provider="openrouter",
        model=r"^qwen/qwen(3\.[5-9]|[4-9])(?!.*(coder|instruct|thinking))",
        fields=_ROUTED_HYBRID,
        source=f"{_ROUTER_THINKING}; oh-my-pi#886; eino#994",
    ),
    Row(
        id="openrouter",
        example="openrouter/minimax/minimax-m2.5",
        models="all others",
        provider="openrouter",
        fields={**_ROUTED, **_ROUTED_EFFORT},
        source=f"{_ROUTER_DOCS}/streaming",
    ),
    # --- Amazon Bedrock --------------------------------------------------------------------------
    Row(
        id="bedrock-claude-bound",
        example="bedrock/us.anthropic.claude-opus-5-5",
        models="Claude Opus/Sonnet 5.5, Fable/Mythos 5.1 and 5.2",
        provider="bedrock.*",
        model=_BOUND_NAMES,
        fields={**_CLAUDE_ALWAYS, **_BINDING},
        source="vercel/ai#21364; stdapi#284; docs.aws.amazon.com claude-messages",
    ),
    Row(
        id="bedrock-claude-haiku",
        example="bedrock/us.anthropic.claude-haiku-5-5",
        models="Claude Haiku 5.5",
        provider="bedrock.*",
        model=r"claude-haiku-5[.-]5",
        fields={**_BEDROCK_ADAPTIVE, **_BINDING},
        source="docs.aws.amazon.com claude-messages-thinking-block-binding; langchain-aws#1141",
    ),
    Row(
        id="bedrock-claude-adaptive",
        example="bedrock/us.anthropic.claude-opus-4-8",
        models="Claude Opus 4.8, the Claude 5 family",
        provider="bedrock.*",
        model=r"claude-(opus-4[.-]8|(opus|sonnet|fable|haiku)-5(?!\d))",
        fields=_BEDROCK_ADAPTIVE,
        source="langchain-aws#1141; langchain-aws#1151",
    ),
    Row(
        id="bedrock-claude",
        example="bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        models="other Claude models",
        provider="bedrock.*",
        model="claude",
        fields={},
        source="langchain-aws#927",
    ),
    Row(
        id="bedrock-mistral",
        example="bedrock/mistral.mistral-large-2407-v1:0",
        models="Mistral",
        provider="bedrock.*",
        model=_MISTRAL_NAMES,
        fields={"forced_any": "ok", "forced_named": "one", "effort_via": "none", **_APART},
        source="docs.aws.amazon.com API_runtime_ToolChoice; langchain-aws#1118",
    ),
    Row(
        id="bedrock-llama",
        example="bedrock/meta.llama3-1-70b-instruct-v1:0",
        models="Llama",
        provider="bedrock.*",
        model="llama",
        # Where LiteLLM breaks a whole reply up into a stream, it keeps but one of its calls.
        fields={**_FORCED_AUTO, **_APART, "effort_via": "none", "stream": False, "silence": 600.0},
        source="LiteLLM's tables (supports_tool_choice); harness-sdk#1223, #3882; "
        "langchain-aws#1118",
    ),
    Row(
        id="bedrock-gpt-oss",
        tested="request",
        example="bedrock/openai.gpt-oss-120b-1:0",
        models="gpt-oss",
        provider="bedrock.*",
        model="gpt-oss",
        fields={**_EFFORT_ONLY, "efforts": _TO_HIGH},
        source="langchain-aws#1278; litellm#13959",
    ),
    Row(
        id="bedrock-deepseek-r1",
        tested="request",
        example="bedrock/us.deepseek.r1-v1:0",
        models="DeepSeek R1",
        provider="bedrock.*",
        model=r"deepseek[.-]r1",
        fields={"tools": False, "effort_via": "none"},
        source="LiteLLM's tables (supports_function_calling)",
    ),
    # --- other hosts -----------------------------------------------------------------------------
    Row(
        id="groq-qwen",
        example="groq/qwen/qwen3-32b",
        models="Qwen 3",
        provider="groq",
        model="qwen3",
        fields={
            **_EFFORT_ONLY,
            "effort_via": "extra_body:reasoning_effort",
            "efforts": ("none", "default"),
        },
        source="pi#1745; free-claude-code#1348",
    ),
    Row(
        id="groq-gpt-oss",
        example="groq/openai/gpt-oss-120b",
        models="gpt-oss",
        provider="groq",
        model="gpt-oss",
        fields={**_EFFORT_ONLY, "efforts": _TO_HIGH},
        source="GoModel#946",
    ),
    Row(
        id="groq",
        example="groq/llama-3.3-70b-versatile",
        models="all others",
        provider="groq",
        fields={**_FORCED_OK, "wire": "completions", "effort_via": "none"},
        source="freellmapi#291",
    ),
    Row(
        id="nim-mistral",
        example="nvidia_nim/mistralai/mistral-small-4-119b-2603",
        models="Mistral",
        provider="nvidia_nim",
        model=_MISTRAL_NAMES,
        fields={
            **_MISTRAL,
            "omit_auto": True,
            "effort_via": "extra_body:reasoning_effort",
            "efforts": ("none", "high"),
        },
        source="hermes-agent#20154; models.dev#2111",
    ),
    Row(
        id="nim",
        example="nvidia_nim/meta/llama-3.3-70b-instruct",
        models="all others",
        provider="nvidia_nim",
        fields={
            **_FORCED_OK,
            "wire": "completions",
            "omit_auto": True,
            "bridge": _BRIDGE,
            "effort_via": "extra_body:reasoning_effort",
            "efforts": _TO_HIGH,
        },
        source="openclaude#1950; kimi-cli#2534; nvidia-nim-provider#2",
    ),
    Row(
        id="vllm-mistral",
        tested="request",
        example="hosted_vllm/mistralai/Mistral-Small-4",
        models="Mistral",
        provider="hosted_vllm|vllm",
        model=_MISTRAL_NAMES,
        fields={**_EFFORT_ONLY, **_MISTRAL},
        source=_MISTRAL_SOURCE,
    ),
    Row(
        id="vllm-gpt-oss",
        example="hosted_vllm/openai/gpt-oss-120b",
        models="gpt-oss",
        provider="hosted_vllm|vllm",
        model="gpt-oss",
        fields={**_EFFORT_ONLY, "efforts": _TO_HIGH},
        source="vllm#53626; vllm#44216",
    ),
    Row(
        id="vllm",
        example="hosted_vllm/Qwen/Qwen3-32B",
        models="all others",
        provider="hosted_vllm|vllm",
        fields=_EFFORT_ONLY,
        source="vllm#23227; vllm#9986",
    ),
    Row(
        id="ollama-gpt-oss",
        example="ollama_chat/gpt-oss:20b",
        models="gpt-oss",
        provider="ollama(_chat)?",
        model="gpt-oss",
        fields={**_EFFORT_ONLY, **_FORCED_AUTO, **_LOADS, "efforts": _TO_HIGH},
        source="ollama#17837; ollama#17859",
    ),
    Row(
        id="ollama",
        example="ollama_chat/qwen3",
        models="all others",
        provider="ollama(_chat)?",
        fields={
            **_EFFORT_ONLY,
            **_FORCED_AUTO,
            **_LOADS,
            "efforts": ("none", "low", "medium", "high"),
        },
        source="LiteLLM llms/ollama/chat; openclaude#1371",
    ),
    Row(
        id="openai-compatible",
        tested="request",
        example="openai/our-model",
        models="a model that LiteLLM's tables lack, at an OPENAI_BASE_URL of your own",
        provider="openai-compatible",
        fields=_EFFORT_ONLY,
        source="vllm#23227",
    ),
)

_MAKERS: Final = (
    Row(
        id="mistral",
        example="mistral/mistral-medium-latest",
        models="Mistral",
        provider="mistral|codestral",
        fields={**_MISTRAL, "effort_via": "reasoning_effort"},
        source=_MISTRAL_SOURCE,
    ),
    Row(
        id="mistral-elsewhere",
        tested="request",
        example="azure_ai/mistral-medium-2505",
        models="Mistral at other hosts",
        model=_MISTRAL_NAMES,
        fields={key: value for key, value in _MISTRAL.items() if key != "wire"},
        source=_MISTRAL_SOURCE,
    ),
    Row(
        id="deepseek-v4",
        example="deepseek/deepseek-v4-pro",
        models="DeepSeek V4",
        provider="deepseek|",
        model=r"deepseek-(v4|flash)",
        fields={
            **_FORCED_SILENT,
            **_LONG,
            "wire": "completions",
            "thinks": "default",
            "off_switch": _DISABLED,
            "fill_reasoning": True,
            "on_switch": {"thinking": {"type": "enabled"}},
            "omit_auto": True,
            "null_content": False,
            "send_back": "thinking",
            "effort_via": "extra_body:reasoning_effort",
            "efforts": ("low", "high", "max"),
        },
        source="https://api-docs.deepseek.com/guides/thinking_mode; DeepSeek-V3#1376; eino#994",
    ),
    Row(
        id="deepseek-reasoner",
        tested="request",
        example="deepseek/deepseek-reasoner",
        models="DeepSeek Reasoner (until 2026-07-24)",
        provider="deepseek|",
        model="deepseek-(reasoner|r1)",
        fields={
            **_FORCED_AUTO,
            "wire": "completions",
            "thinks": "always",
            "omit_auto": True,
            "null_content": False,
            "send_back": "always",
            "effort_via": "none",
            "silence": 600.0,
        },
        source="https://api-docs.deepseek.com/guides/thinking_mode",
    ),
    Row(
        id="deepseek",
        tested="request",
        example="deepseek/deepseek-chat",
        models="other DeepSeek models",
        provider="deepseek",
        fields={
            **_FORCED_OK,
            "wire": "completions",
            "thinks": "no",
            "null_content": False,
            "effort_via": "none",
        },
        source="https://api-docs.deepseek.com/guides/thinking_mode",
    ),
    Row(
        id="qwen-instruct",
        tested="request",
        example="dashscope/qwen3-coder-plus",
        models="Qwen without thinking: coder, instruct, max preview",
        provider="dashscope",
        model="coder|instruct|qwen3-max-preview|qwen(-|2)",
        fields={**_FORCED_OK, "wire": "completions", "effort_via": "none"},
        source="https://help.aliyun.com (deep thinking); qwen-code#7659",
    ),
    Row(
        id="qwen-thinking",
        tested="request",
        example="dashscope/qwen3-next-80b-a3b-thinking",
        models="Qwen that always thinks",
        provider="dashscope",
        model="-thinking",
        fields={**_FORCED_AUTO, "wire": "completions", "thinks": "always", "effort_via": "none"},
        source="https://help.aliyun.com (deep thinking)",
    ),
    Row(
        id="qwen",
        example="dashscope/qwen3.7-plus",
        models="Qwen 3.5 and later",
        provider="dashscope",
        fields={
            **_FORCED_SILENT,
            "wire": "completions",
            "thinks": "default",
            "off_switch": {"extra_body": {"enable_thinking": False}},
            "effort_via": "extra_body:thinking_budget",
            "send_back": "never",
            "silence": 300.0,
        },
        source="eino#994; agentscope#1608; https://help.aliyun.com (deep thinking)",
    ),
    Row(
        id="kimi-k2.7",
        example="moonshot/kimi-k2.7-code",
        models="Kimi K2.7",
        provider="moonshot|",
        model=r"kimi-k2[.-]7",
        fields={
            **_FORCED_AUTO,
            "wire": "completions",
            "thinks": "always",
            "send_back": "always",
            "fill_reasoning": True,
            "null_content": False,
            "effort_via": "none",
            "silence": 300.0,
        },
        source="oh-my-pi#3852; https://platform.kimi.com",
    ),
    Row(
        id="kimi-k2",
        example="moonshot/kimi-k2.6",
        models="Kimi K2.5 and K2.6",
        provider="moonshot|",
        model=r"kimi-k2[.-][56]",
        fields={
            **_FORCED_SILENT,
            "wire": "completions",
            "thinks": "default",
            "off_switch": {"extra_body": _DISABLED},
            "fill_reasoning": True,
            "raw_choice": True,
            "send_back": "thinking",
            "null_content": False,
            "effort_via": "none",
            "silence": 300.0,
        },
        source="oh-my-pi#827; inspect_ai#5152; nanobot#3939",
    ),
    Row(
        id="kimi-k3",
        example="moonshot/kimi-k3",
        models="Kimi K3",
        provider="moonshot|",
        model="kimi-k3",
        fields={
            "forced_any": "ok",
            "forced_named": "one",
            "wire": "completions",
            "thinks": "always",
            "raw_choice": True,
            "send_back": "always",
            "fill_reasoning": True,
            "null_content": False,
            "effort_via": "reasoning_effort",
            "efforts": ("low", "high", "max"),
            **_LONG,
        },
        source="oh-my-pi#5994; opencode-kimi-full#11",
    ),
    Row(
        id="zai-5.3",
        example="zai/glm-5.3",
        models="GLM 5.3",
        provider="zai",
        model=r"glm-5[.-]3",
        fields={
            **_ZAI_THINKS,
            "thinks": "always",
            "effort_via": "extra_body:reasoning_effort",
            "efforts": ("low", "high", "max"),
        },
        source=f"{_ZAI_SOURCE}; dev.to/aihubmix 2026-08-14",
    ),
    Row(
        id="zai-5.2",
        example="zai/glm-5.2",
        models="GLM 5.2",
        provider="zai",
        model=r"glm-5[.-]2",
        fields={
            **_ZAI_THINKS,
            "thinks": "default",
            "off_switch": {"extra_body": _DISABLED},
            "effort_via": "extra_body:reasoning_effort",
            "efforts": ("none", "high", "max"),
        },
        source=f"{_ZAI_SOURCE}; docs.anyfast.ai",
    ),
    Row(
        id="zai-thinking",
        example="zai/glm-4.7",
        models="GLM 4.6, 4.7, 5 and 5.1",
        provider="zai",
        model=r"glm-(4[.-][67]|5)",
        fields={**_ZAI_THINKS, "thinks": "default", "off_switch": {"extra_body": _DISABLED}},
        source=f"{_ZAI_SOURCE}; hermes-webui exp-v0.52.105",
    ),
    Row(
        id="zai",
        tested="request",
        example="zai/glm-4.5",
        models="other GLM models",
        provider="zai",
        fields=_ZAI,
        source=_ZAI_SOURCE,
    ),
    # --- Gemini ----------------------------------------------------------------------------------
    Row(
        id="gemini-2.5-flash",
        example="gemini/gemini-2.5-flash",
        models="Gemini 2.5 Flash",
        provider=_GEMINI_HOSTS,
        model=r"gemini-2\.5-flash",
        fields={**_GEMINI_BUDGET, "thinks": "default", "largest_budget": 24576},
        source=f"{_GEMINI_SOURCE}; RooCode#4399",
    ),
    Row(
        id="gemini-2.5",
        example="gemini/gemini-2.5-pro",
        models="Gemini 2.5 Pro",
        provider=_GEMINI_HOSTS,
        model=r"gemini-2\.5",
        fields={**_GEMINI_BUDGET, "largest_budget": 32768},
        source=f"{_GEMINI_SOURCE}; chatluna#519",
    ),
    Row(
        id="gemini-new-flash",
        example="gemini/gemini-3.8-flash",
        models="Gemini 3.7 and 3.8 Flash, Gemini 4",
        provider=_GEMINI_HOSTS,
        model=r"gemini-(3\.[78]-flash|[4-9])",
        fields={**_GEMINI_LEVEL, "efforts": _TO_HIGH},
        source="LiteLLM's tables (supports_minimal_reasoning_effort)",
    ),
    Row(
        id="gemini-3-flash",
        example="gemini/gemini-3.5-flash",
        models="Gemini 3 to 3.6 Flash",
        provider=_GEMINI_HOSTS,
        model=r"gemini-3(\.\d)?-flash",
        fields={**_GEMINI_LEVEL, "efforts": ("minimal", *_TO_HIGH)},
        source=_GEMINI_SOURCE,
    ),
    Row(
        id="gemini-3",
        example="gemini/gemini-3.1-pro-preview",
        models="other Gemini 3 models",
        provider=_GEMINI_HOSTS,
        model="gemini-3",
        fields={**_GEMINI_LEVEL, "efforts": _TO_HIGH},
        source=f"{_GEMINI_SOURCE}; discuss.ai.google.dev/t/112648",
    ),
    Row(
        id="gemini",
        tested="request",
        example="gemini/gemini-2.0-flash",
        models="other Gemini models",
        provider=_GEMINI_HOSTS,
        model="gemini",
        fields={**_FORCED_OK, "signed_ids": True},
        source=_GEMINI_SOURCE,
    ),
    # --- xAI -------------------------------------------------------------------------------------
    Row(
        id="xai-multi-agent",
        tested="request",
        example="xai/grok-4.20-multi-agent",
        models="Grok 4.20 Multi-Agent",
        provider="xai",
        model="multi-agent",
        fields={
            **_XAI,
            "tools": False,
            "effort_via": "reasoning",
            "efforts": ("low", "medium", "high", "xhigh"),
        },
        source="big-AGI#1104; LiteLLM's tables (supports_function_calling)",
    ),
    Row(
        id="xai-4.3",
        example="xai/grok-4.3",
        models="Grok 4.3",
        provider="xai",
        model=r"grok-4\.3",
        fields={**_XAI_EFFORT, "efforts": ("none", *_TO_HIGH)},
        source=_XAI_DOCS,
    ),
    Row(
        id="xai-4.5",
        example="xai/grok-4.5",
        models="Grok 4.5",
        provider="xai",
        model=r"grok-4\.5|grok-build-latest",
        fields={**_XAI_EFFORT, "efforts": _TO_HIGH},
        source="llmgateway#3669; modelparams.dev#330",
    ),
    Row(
        id="xai-4.6",
        example="xai/grok-4.6",
        models="Grok 4.6 and 4.7",
        provider="xai",
        model=r"grok-4\.[67]",
        fields={**_XAI_EFFORT, "efforts": (*_TO_HIGH, "xhigh")},
        source="llmgateway#3669; modelparams.dev#330",
    ),
    Row(
        id="xai",
        example="xai/grok-4.20-reasoning",
        models="other Grok models",
        provider="xai",
        fields={**_XAI, "effort_via": "none"},
        source="hermes-agent#23435; grok2api#814; litellm#16265",
    ),
    # --- Claude at Anthropic, Vertex AI, Azure AI and behind proxies -----------------------------
    Row(
        id="claude-bound-azure",
        tested="request",
        example="azure_ai/claude-opus-5-5",
        models="Claude Opus/Sonnet 5.5, Fable/Mythos 5.1 and 5.2 at Azure AI",
        provider="azure_ai",
        model=f"{_BOUND_NAMES}|{_NEWER_CLAUDE}",
        fields=_CLAUDE_ALWAYS,
        source="litellm#41203; opencode#46729",
    ),
    Row(
        id="claude-bound-always",
        example="anthropic/claude-opus-5-5",
        models="Claude Opus/Sonnet 5.5, Fable/Mythos 5.1 and 5.2",
        model=_BOUND_NAMES,
        fields={**_CLAUDE_ALWAYS, **_BINDING},
        source=f"{_WHATS_NEW}; {_PRESERVED}",
    ),
    Row(
        id="claude-bound",
        example="anthropic/claude-haiku-5-5",
        models="Claude Haiku 5.5",
        model=r"claude-haiku-5[.-]5",
        fields={**_CLAUDE_DEFAULT, **_BINDING},
        source=f"{_PRESERVED}; pydantic-ai#7991",
    ),
    Row(
        id="claude-new",
        example="anthropic/claude-opus-6",
        models="Claude after 5.1 not named here",
        model=_NEWER_CLAUDE,
        fields={**_CLAUDE_ALWAYS, **_BINDING},
        source=f"hermes-agent#106426; {_PRESERVED}",
    ),
    Row(
        id="claude-always",
        example="anthropic/claude-fable-5",
        models="Claude Fable 5, Mythos 5, Mythos Preview",
        model=r"claude-(fable-5|mythos-5|mythos-preview)",
        fields={**_CLAUDE_ALWAYS, **_UNLESS_THINKING},
        source=f"{_FORCED_ADAPTIVE}; claude-cookbooks#854; LiteLLM's tables (thinking_always_on)",
    ),
    Row(
        id="claude-default-on",
        example="anthropic/claude-opus-5",
        models="Claude Opus 5, Sonnet 5",
        model=r"claude-(opus|sonnet)-5",
        fields=_CLAUDE_DEFAULT,
        source=f"{_FORCED_ADAPTIVE}; pydantic-ai#6161, #7991; haystack#3526",
    ),
    Row(
        id="claude-adaptive",
        example="anthropic/claude-opus-4-8",
        models="Claude Opus 4.7, 4.8",
        model=r"claude-opus-4[.-][78]",
        fields=_CLAUDE_ASKED,
        source="free-claude-code#32; LiteLLM's tables (supports_adaptive_thinking)",
    ),
    Row(
        id="claude",
        example="anthropic/claude-sonnet-4-5",
        models="other Claude models",
        model="claude",
        fields={},
        source="oh-my-pi#341; LiteLLM's tables",
    ),
    # --- OpenAI ----------------------------------------------------------------------------------
    Row(
        id="gpt-5-pro",
        example="openai/gpt-5-pro",
        models="gpt-5-pro",
        model=r"(^|/)gpt-5-pro",
        provider=_OPENAI_HOSTS,
        fields={**_GPT_LONG, "efforts": ("high",), "stream": False, "silence": 3600.0},
        source="models.dev#331; opencode#3474",
    ),
    Row(
        id="o-pro",
        example="openai/o3-pro",
        models="o1-pro, o3-pro",
        provider=_OPENAI_HOSTS,
        model="^o[13]-pro",
        fields={**_GPT_LONG, "efforts": _TO_HIGH},
        source="litellm#9419",
    ),
    Row(
        id="gpt-pro",
        example="openai/gpt-5.5-pro",
        models="gpt-5.2-pro and later",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-.*-pro",
        fields={**_GPT_LONG, "efforts": ("medium", "high", "xhigh")},
        source="openai-node#1964; lobehub#14238",
    ),
    Row(
        id="gpt-5-chat",
        example="openai/gpt-5-chat-latest",
        models="gpt-5-chat",
        provider=_OPENAI_HOSTS,
        model="^gpt-5-chat",
        fields={"thinks": "no", "effort_via": "none"},
        source="one-api#120; opencode#1984",
    ),
    Row(
        id="gpt-chat-latest",
        tested="request",
        example="openai/gpt-5.2-chat-latest",
        models="gpt-…-chat-latest",
        provider=_OPENAI_HOSTS,
        model="chat-latest",
        fields={**_GPT, "thinks": "asked", "efforts": ("medium",)},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="gpt-6-astra",
        example="openai/gpt-6-astra",
        models="gpt-6-astra, gpt-6.1-sol, gpt-6.2-astra",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-(6(\.\d)?-astra|6\.[1-9]-sol)",
        fields={**_GPT_RESPONSES, "thinks": "always", "efforts": _TO_MAX},
        source="litellm#34569; apidog 2026-11-18; langchain#40330",
    ),
    Row(
        id="gpt-6",
        example="openai/gpt-6-sol",
        models="gpt-5.6, gpt-6 and later",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-(5\.[6-9]|[6-9])",
        fields={**_GPT_RESPONSES, "thinks": "default", "efforts": ("none", *_TO_MAX)},
        source="LibreChat#14231; litellm#34569",
    ),
    Row(
        id="gpt-codex",
        example="openai/gpt-5-codex",
        models="gpt-5-codex, gpt-5.1-codex",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-5(\.1)?-codex(?!-max)",
        fields={**_GPT, "thinks": "default", "efforts": _TO_HIGH},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="gpt-5.4",
        example="openai/gpt-5.5",
        models="gpt-5.4, gpt-5.5",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-5\.[45]",
        fields={**_GPT_RESPONSES, "thinks": "asked", "efforts": ("none", *_TO_HIGH, "xhigh")},
        source=f"pipecat#4043; openai-openapi#541; {_OPENAI_EFFORTS}",
    ),
    Row(
        id="gpt-5.2",
        example="openai/gpt-5.2",
        models="gpt-5.2, gpt-5.3",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-5\.[23]",
        fields={**_GPT, "thinks": "asked", "efforts": ("none", *_TO_HIGH, "xhigh")},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="gpt-5.1",
        example="openai/gpt-5.1",
        models="gpt-5.1",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-5\.1",
        fields={**_GPT, "thinks": "asked", "efforts": ("none", *_TO_HIGH)},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="gpt-5",
        example="openai/gpt-5-mini",
        models="gpt-5, -mini, -nano",
        provider=_OPENAI_HOSTS,
        model=r"^gpt-5(?!\.)",
        fields={**_GPT, "thinks": "default", "efforts": ("minimal", *_TO_HIGH)},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="o-series",
        example="openai/o4-mini",
        models="o1, o3, o4-mini",
        provider=_OPENAI_HOSTS,
        model=r"^o[134](-|$)",
        fields={**_GPT, "thinks": "always", "efforts": _TO_HIGH},
        source=_OPENAI_EFFORTS,
    ),
    Row(
        id="openai",
        example="openai/gpt-4.1",
        models="others at OpenAI",
        provider="openai",
        fields={},
        source="https://developers.openai.com (migrate to responses)",
    ),
)

ROWS: Final[tuple[Row, ...]] = (
    *_HOSTS,
    *_MAKERS,
    Row(
        id="default",
        tested="request",
        example="together_ai/some-model",
        models="all others",
        fields={},
        source="LiteLLM's tables",
    ),
)
"""The table; the first row that fits counts, and the last fits every model."""
