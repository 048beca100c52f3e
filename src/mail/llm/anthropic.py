"""Anthropic's message blocks as pure functions, in LiteLLM's dress.

A reply's blocks are kept and sent back in their exact order, because thinking is signed together
with its place. LiteLLM takes chat messages; it joins neighbouring assistant messages, so a reply
goes out as several of them wherever one could not keep the order.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mail.llm.completions import mark_for_cache, read_chunk, tool_choice, tool_results
from mail.llm.history import (
    Replied,
    Said,
    conversation,
    parse_arguments_text,
    plain_copy,
    text_of,
)
from mail.llm.profiles import PROXY_PREFIX, Profile
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    Delta,
    FunctionCall,
    ModelReply,
    ModelRequest,
    Part,
    Speech,
    Thought,
)
from mail.llm.thinking import THINKING, forced_by, may_think, thinking_arguments
from mail.llm.tools import tools_for

INTERLEAVED: Final = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
"""The header that lets a model think between its tool calls."""

TEXT_BLOCK: Final = "mail_text_block"
"""The key for the citations of a text block in the piece of the stream that ends it."""

_LEAST_BUDGET: Final = 1024
_THINK_UNASKED: Final = ("default", "always")
_MCP_CALL: Final = "mcptoolu_"
_SERVER_CALLS: Final = ("srvtoolu_", _MCP_CALL)
_USES: Final = ("server_tool_use", "mcp_tool_use")
_NOT_TAKEN_BACK: Final = "file_id"
_EVENT_NAMES: Final[Mapping[str, str]] = {
    "web_search": "web_search_call",
    "code_execution": "code_interpreter_call",
    "bash_code_execution": "code_interpreter_call",
    "text_editor_code_execution": "code_interpreter_call",
}


def encode(request: ModelRequest, profile: Profile) -> dict[str, Any]:
    """Build the keyword arguments of LiteLLM's chat call to a Claude model.

    Most models that think cannot be forced to call a tool. So a call that forces one tool is made
    without thinking, or where a model always thinks, leaves it the choice. A call with a budget in
    a turn that began without thinking would be refused, so it is made without.

    Args:
        request: The question; nothing in it is changed or shared with the result.
        profile: The facts about the model. If its requests can be marked for the cache,
            system prompt and tools are, and the conversation so far.
    """
    settings = request.settings
    exchanges = conversation(request.messages, profile)
    forced = forced_by(request.tool_choice, profile)
    off = forced == "off" or (settings.effort == "none" and profile.thinks == "default")
    if off:
        asked = plain_copy(profile.off_switch)
    elif may_think(request.tool_choice, exchanges, profile):
        asked = thinking_arguments(settings, profile, least=_LEAST_BUDGET)
    else:
        asked = {}
    thinks = not off and (bool(asked) or profile.thinks in _THINK_UNASKED)
    thoughts = thinks and profile.send_back != "never"
    # A proxy speaks chat completions, which may lead to others than Anthropic.
    sources = not request.model.startswith(PROXY_PREFIX)
    messages = list(_messages(exchanges, keep_thinking=thoughts, keep_sources=sources))
    messages[:0] = _system(request, messages)
    if profile.cache_marks:
        mark_for_cache(messages)
    wire: dict[str, Any] = {"model": request.model, "messages": messages} | asked
    if asked and profile.effort_via == "thinking_budget":  # others do so by themselves
        wire["extra_headers"] = dict(INTERLEAVED)
    most = settings.max_tokens or profile.max_tokens
    if most is not None:
        wire.setdefault("max_tokens", most)
    if request.tools:
        wire["tools"] = tools_for(request.tools, "anthropic")
        free = forced == "auto" or (thinks and bool(asked) and forced in (None, "unless_thinking"))
        wire["tool_choice"] = tool_choice(request.tool_choice, request.tools, free=free)
    return wire


def _system(request: ModelRequest, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take the system prompt off the messages, or make one of the request's, as blocks."""
    if messages and messages[0].get("role") == "system":
        content = messages.pop(0).get("content")
    else:
        content = request.system
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    return [{"role": "system", "content": list(content)}] if content else []


def _messages(
    exchanges: Sequence[Said | Replied], *, keep_thinking: bool, keep_sources: bool
) -> Iterator[dict[str, Any]]:
    for exchange in exchanges:
        if isinstance(exchange, Said):
            yield plain_copy(exchange.message)
            continue
        blocks = _blocks(exchange, keep_thinking)
        if not keep_sources:
            for block in blocks:
                block.pop("citations", None)
        paused = exchange is exchanges[-1] and not exchange.calls
        yield from _chat_messages(_finished(blocks, paused=paused))
        yield from tool_results(exchange)


def _blocks(reply: Replied, keep_thinking: bool) -> list[dict[str, Any]]:
    if reply.wire == "anthropic":
        blocks: list[dict[str, Any]] = plain_copy(reply.entries[0]["content"])
        return [b for b in blocks if keep_thinking or b.get("type") not in THINKING]
    text = [{"type": "text", "text": reply.text}] if reply.text.strip() else []
    return [*text, *(_tool_use(call) for call in reply.calls)]


def _finished(blocks: Sequence[dict[str, Any]], *, paused: bool) -> list[dict[str, Any]]:
    """Return the blocks of a reply without what the provider would refuse.

    No message may end in thinking, and only a paused one in a call whose result is still to come.
    """
    found = {block.get("tool_use_id") for block in blocks}
    used = {block.get("id") for block in blocks if block.get("type") in _USES}
    whole = [
        block
        for block in blocks
        if (paused or block.get("type") not in _USES or block.get("id") in found)
        and (block.get("type") != "mcp_tool_result" or block.get("tool_use_id") in used)
    ]
    while whole and whole[-1].get("type") in THINKING:
        whole.pop()
    return whole


def _chat_messages(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Spread blocks over chat messages that LiteLLM joins again in the same order."""
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []

    def flush() -> Iterator[dict[str, Any]]:
        if content or calls:
            message: dict[str, Any] = {"role": "assistant", "content": list(content) or None}
            if calls:
                message["tool_calls"] = list(calls)
            yield message
        content.clear()
        calls.clear()

    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            arguments = to_json(block.get("input") or {}).decode()
            function = {"name": block["name"], "arguments": arguments}
            calls.append({"id": block["id"], "type": "function", "function": function})
            continue
        # Of what stands in the content, LiteLLM would drop these blocks, and citations.
        outside = kind in ("redacted_thinking", "mcp_tool_use") or bool(block.get("citations"))
        if calls or outside:
            yield from flush()
        if not outside:
            content.append(block)
        elif kind == "redacted_thinking":
            yield {"role": "assistant", "content": None, "thinking_blocks": [block]}
        else:  # LiteLLM passes on what stands there, whatever it is
            whole = {"compaction_blocks": [_taken_back(block)]}
            yield {"role": "assistant", "content": None, "provider_specific_fields": whole}
    yield from flush()


def _taken_back(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as the provider takes it: citations without a field that only replies have."""
    citations = block.get("citations")
    for citation in citations if isinstance(citations, list) else ():
        if isinstance(citation, dict):
            citation.pop(_NOT_TAKEN_BACK, None)
    return block


def decode(chunk: Any) -> Delta:
    """Read one chunk of LiteLLM's stream, given as a mapping or an object."""
    delta, piece = read_chunk(chunk)
    delta.wire = "anthropic"
    if extra := piece.get("provider_specific_fields"):
        found = (extra.get(name) or () for name in ("web_search_results", "tool_results"))
        delta.results = tuple(block for blocks in found for block in blocks)
        if isinstance(citations := extra.get(TEXT_BLOCK), list):
            delta.text_done = True
            delta.citations = tuple(one for one in citations if isinstance(one, Mapping))
    if delta.calls:
        for call in delta.calls:
            call.builtin = call.id.startswith(_SERVER_CALLS)
    return delta


def server_tool(
    call_id: str, name: str, arguments: str, result: Mapping[str, Any] | None = None
) -> BuiltinCall:
    """Return a call that the provider ran itself, under the name that events have for it.

    Args:
        call_id: Its id.
        name: The provider's name of the tool; that of an MCP server has the server's in front.
        arguments: The arguments from the model, as JSON text.
        result: The provider's block with what came out, if it came.
    """
    given = parse_arguments_text(arguments)
    if call_id.startswith(_MCP_CALL):
        return _mcp_call(call_id, name, given, result)
    event = _EVENT_NAMES.get(name, "server_tool_use")
    if event == "web_search_call":
        shown: dict[str, Any] = {"query": given.get("query", "")}
    elif event == "code_interpreter_call":
        shown = {"code": given.get("code") or given.get("command") or ""}
    else:
        shown = {"name": name, "input": given}
    found = result.get("content") if result is not None else None
    native = {"type": "server_tool_use", "id": call_id, "name": name, "input": given}
    return BuiltinCall(call_id, event, shown | _found(found), native)


def _mcp_call(
    call_id: str, name: str, given: dict[str, Any], result: Mapping[str, Any] | None
) -> BuiltinCall:
    server, _, tool = name.rpartition("/")
    status = "incomplete" if result is None else "failed" if result.get("is_error") else "completed"
    shown: dict[str, Any] = {"name": tool, "server_label": server, "arguments": given}
    shown["status"] = status
    if result is not None:
        shown["output"] = text_of(result)
    native = {"type": "mcp_tool_use", "id": call_id, "name": tool, "server_name": server}
    return BuiltinCall(call_id, "mcp_call", shown, native | {"input": given})


def with_results(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a joined reply; a call shows the result that came after a pause."""
    results = {
        part.native.get("tool_use_id"): part.native
        for part in parts
        if isinstance(part, BuiltinResult)
    }

    def shown(part: Part) -> Part:
        if not isinstance(part, BuiltinCall):
            return part
        given = to_json(part.native["input"]).decode()
        server = part.native.get("server_name")
        name = part.native["name"] if server is None else f"{server}/{part.native['name']}"
        return server_tool(part.id, name, given, results.get(part.id))

    return tuple(map(shown, parts))


def _found(content: Any) -> dict[str, Any]:
    """Return what an event shows of a result: its readable part, or the error."""
    if isinstance(content, Mapping) and content.get("error_code"):
        return {"status": "failed", "error": content["error_code"]}
    if isinstance(content, Mapping) and ("stdout" in content or "stderr" in content):
        logs = f"{content.get('stdout') or ''}{content.get('stderr') or ''}"
        return {"status": "completed", "outputs": [{"type": "logs", "logs": logs}]}
    if isinstance(content, list):
        pages = [{key: page.get(key) for key in ("title", "url")} for page in content]
        return {"status": "completed", "results": pages}
    return {"status": "incomplete" if content is None else "completed"}


def assistant_message(reply: ModelReply) -> dict[str, Any]:
    """Return the history entry of a reply: its blocks in their order."""
    blocks = [block for part in reply.parts for block in _blocks_of(part)]
    return {"role": "assistant", "content": blocks or [{"type": "text", "text": "(nothing)"}]}


def _blocks_of(part: Part) -> list[dict[str, Any]]:
    match part:
        case Thought(native=native):
            return [plain_copy(native)] if native else []
        case Speech(text=text, native=native):
            plain = [{"type": "text", "text": text}] if text.strip() else []
            return plain_copy(native) or plain
        case FunctionCall():
            return [_tool_use(part)]
        case BuiltinCall(native=native) | BuiltinResult(native=native):
            return [plain_copy(native)]


def _tool_use(call: FunctionCall) -> dict[str, Any]:
    given = parse_arguments_text(call.arguments)
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}
