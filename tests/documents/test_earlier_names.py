"""The public names of 1.3.6 as first released: a program that imports them keeps working."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = {
    "mail": (
        "AgentToolCall MAILAction MAILAgent MAILAgentTemplate MAILBroadcast MAILInterrupt "
        "MAILInterswarmMessage MAILMessage MAILRequest MAILResponse MAILRuntime MAILSwarm "
        "MAILSwarmTemplate action"
    ),
    "mail.api": "MAILAction MAILAgent MAILAgentTemplate MAILSwarm MAILSwarmTemplate action",
    "mail.client": "MAILClient",
    "mail.cli": "main",
    "mail.config": (
        "ClientConfig FsConfig HttpConfig LimitsConfig ServerConfig SettingsConfig "
        "StdlibConfig StoreConfig SwarmConfig"
    ),
    "mail.core": (
        "ActionCore ActionFunction ActionOverrideFunction AgentCore AgentFunction "
        "AgentToolCall MAILAddress MAILBroadcast MAILInterrupt MAILInterswarmMessage "
        "MAILMessage MAILRequest MAILResponse MAILRuntime MAIL_TOOL_NAMES "
        "create_admin_address create_agent_address create_system_address create_user_address "
        "format_agent_address parse_agent_address"
    ),
    "mail.core.message": (
        "AddressType Composer Contributor Envelope MAILAddress MAILBroadcast MAILInterrupt "
        "MAILInterswarmMessage MAILMessage MAILPayload MAILRequest MAILResponse "
        "MAIL_ALL_LOCAL_AGENTS MAIL_MESSAGE_TYPES MessageKind Subject build_body_xml "
        "build_interswarm_mail_xml build_mail_xml check_task_id create_address "
        "create_admin_address create_agent_address create_system_address create_user_address "
        "format_agent_address format_contributor get_address_string get_address_type "
        "parse_agent_address parse_interswarm_message parse_message parse_task_contributor "
        "parse_task_contributors"
    ),
    "mail.core.actions": (
        "ActionCore ActionFailure ActionFunction ActionOverrideFunction ActionResult"
    ),
    "mail.core.agents": "AgentCore AgentFunction AgentOutput ToolChoice",
    "mail.core.tasks": "MAILTask TaskState",
    "mail.core.tools": (
        "AgentToolCall CATALOGUE MAIL_TOOL_NAMES build_mail_help_string "
        "convert_call_to_mail_message create_acknowledge_broadcast_tool "
        "create_await_message_tool create_broadcast_tool create_help_tool "
        "create_ignore_broadcast_tool create_interrupt_tool create_mail_tools "
        "create_request_tool create_response_tool create_search_memory_tool "
        "create_supervisor_tools create_task_complete_tool get_tool_help get_tool_spec_name "
        "normalize_breakpoint_tool_call pydantic_model_to_tool"
    ),
    "mail.core.runtime": (
        "FollowedRun MAILRuntime Run RunEnd RunRequest RunResult RuntimeSettings UNSET"
    ),
    "mail.db": "MemoryStore PostgresStore SQLiteStore Store open_store",
    "mail.errors": (
        "AddressError AgentError AlreadyAnswered AuthError AuthUnavailable BreakpointError "
        "BudgetExceeded ClientDecodeError ClientError ClientHTTPError ConfigError Forbidden "
        "KeyTaken MAILError ModelError ProtocolError ShuttingDown StepFailed StoreConflict "
        "StoreError StoreLocked TaskError TaskFailed TaskPaused TaskTimeout ToolError "
        "Unauthenticated UnknownAgent UnknownTask WrongReference"
    ),
    "mail.factories": (
        "ActionAgentFunction AgentFunction LiteLLMActionAgentFunction LiteLLMAgentFunction "
        "LiteLLMSupervisorFunction MAILAgentFunction SupervisorFunction action_agent_factory "
        "base_agent_factory supervisor_factory"
    ),
    "mail.factories.base": (
        "AgentFunction AgentToolCall CallOptions LiteLLMAgentFunction MAILAgentFunction "
        "PEERS_HEADLINE ReasoningEffort ToolFormat base_agent_factory deprecated_factory"
    ),
    "mail.factories.action": "ActionAgentFunction LiteLLMActionAgentFunction action_agent_factory",
    "mail.factories.supervisor": "LiteLLMSupervisorFunction SupervisorFunction supervisor_factory",
    "mail.llm": (
        "ChatModel Delta FunctionCall LLMSettings LiteLLMModel ModelReply ModelRequest "
        "RetryPolicy ScriptView ScriptedModel call fail model_for otherwise say think when"
    ),
    "mail.llm.script": (
        "Call Fail Maker Rule Say Script Step Think Unfinished call call_text fail otherwise "
        "run_script say think when"
    ),
    "mail.llm.script_view": "Mail ScriptView ToolResult",
    "mail.net.types": (
        "BreakpointCall ErrorAnswer EventData FieldProblem GetHealthResponse GetRootResponse "
        "GetStatusResponse GetSwarmsDumpResponse GetSwarmsResponse GetWhoamiResponse "
        "LoggedEvent LoginResponse PostInterswarmBackResponse PostInterswarmForwardResponse "
        "PostInterswarmMessageResponse PostMessageResponse PostSwarmsLoadResponse "
        "PostSwarmsResponse ServerEvent StreamEvent SwarmEndpointCleaned SwarmInfo "
        "SwarmStatus TaskPage TaskRecord TaskUsage TokenInfo TokenUsage"
    ),
    "mail.server": "app create_app run_server",
    "mail.swarms_json": (
        "SwarmsJSONAction SwarmsJSONAgent SwarmsJSONFile SwarmsJSONSwarm "
        "build_action_from_swarms_json build_agent_from_swarms_json "
        "build_swarm_from_swarms_json build_swarms_from_swarms_json "
        "load_swarms_json_from_file load_swarms_json_from_string"
    ),
    "mail.swarms_json.utils": (
        "ImportAction build_action_from_swarms_json build_agent_from_swarms_json "
        "build_swarm_from_swarms_json build_swarms_from_swarms_json "
        "load_swarms_json_from_file load_swarms_json_from_string "
        "validate_action_from_swarms_json validate_agent_from_swarms_json "
        "validate_swarm_from_swarms_json"
    ),
    "mail.testing": (
        "FakeClock KillPoint KillingStore LoopbackPeer Outcome RecordingModel ScriptedSwarm "
        "agent_from assert_not_shown assert_shown replies run_until_complete scripted_swarm "
        "shown_to tool_calls"
    ),
    "mail.utils": (
        "caller_is_admin caller_is_admin_or_user caller_is_agent caller_is_user extract_token "
        "extract_token_info generate_agent_id generate_user_id get_langmem_store get_loggers "
        "get_protocol_version get_token_info get_version init_logger login read_python_string "
        "require_debug resolve_prefixed_string_references target_address_is_interswarm"
    ),
    "mail.utils.auth": (
        "caller_is_admin caller_is_admin_or_user caller_is_agent caller_is_user extract_token "
        "extract_token_info generate_agent_id generate_user_id get_token_info login "
        "require_debug require_role"
    ),
    "mail.utils.logger": (
        "DailyFileHandler FORMATS JSONFormatter LEVELS LineFormatter get_loggers init_logger redact"
    ),
    "mail.utils.parsing": (
        "PYTHON_PREFIX ReferencePolicy TRUSTED URL_PREFIX read_python_string read_url_string "
        "resolve_prefixed_string_references target_address_is_interswarm"
    ),
    "mail.utils.store": "DEFAULT_OWNER MailStore get_langmem_store",
    "mail.utils.openai": "ResponseRequest ResponsesBridge ResponsesError SwarmOAIClient",
    "mail.stdlib.openai": (
        "OpenAIChatCompletionsAgentFunction OpenAIChatCompletionsSupervisorFunction "
        "OpenAIModel OpenAIResponsesAgentFunction OpenAIResponsesSupervisorFunction"
    ),
    "mail.clock": "Clock SystemClock format_uuid",
    "mail.version": "PROTOCOL_VERSION VERSION get_protocol_version get_version",
}
"""Module to its public names."""

PROJECT = Path(__file__).parent / "earlier_project"


@pytest.mark.parametrize("module", NAMES)
def test_earlier_public_names_are_there(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


@pytest.mark.e2e
def test_a_project_written_against_the_earlier_names_runs_unchanged(tmp_path: Path) -> None:
    """Its swarm answers in a program, over HTTP, through OpenAI's shape, and after a restart."""
    run = subprocess.run(
        [sys.executable, str(PROJECT / "main.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "library": "The stock of apples is 12.",
        "events": True,
        "responses": "The stock of apples is 12.",
        "http": "The stock of apples is 12.",
        "kinds": [
            "new_message",
            "tool_call",
            "action_call",
            "action_complete",
            "new_message",
            "tool_call",
            "task_complete_call",
            "new_message",
            "task_complete",
        ],
        "after restart": "completed",
        "caller": "user",
    }
