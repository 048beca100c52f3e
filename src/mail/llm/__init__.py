"""Language models behind one seam; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "ChatModel",
    "Delta",
    "FunctionCall",
    "LLMSettings",
    "LiteLLMModel",
    "ModelReply",
    "ModelRequest",
    "RetryPolicy",
    "ScriptView",
    "ScriptedModel",
    "call",
    "fail",
    "model_for",
    "otherwise",
    "say",
    "think",
    "when",
]

_REQUEST = "mail.llm.request"
_SCRIPTED = "mail.llm.scripted"
__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(
            ("ChatModel", "Delta", "ModelReply", "ModelRequest", "FunctionCall"), _REQUEST
        ),
        "ScriptedModel": _SCRIPTED,
        "ScriptView": "mail.llm.script_view",
        **dict.fromkeys(("call", "fail", "otherwise", "say", "think", "when"), "mail.llm.script"),
        "LLMSettings": "mail.llm.settings",
        "LiteLLMModel": "mail.llm.litellm_model",
        "RetryPolicy": "mail.llm.retry",
        "model_for": "mail.llm.resolve",
    },
)
