"""Every name that the documents promise can be imported, and has the promised parameters."""

import importlib
import inspect
from typing import Any

import pytest

NAMES: dict[str, str] = {
    "mail": (
        "MAILAction MAILAgent MAILAgentTemplate MAILBroadcast MAILInterrupt MAILInterswarmMessage "
        "MAILMessage MAILRequest MAILResponse MAILRuntime MAILSwarm MAILSwarmTemplate "
        "AgentToolCall SwarmOAIClient action"
    ),
    "mail.api": (
        "MAILAction MAILAgent MAILAgentTemplate MAILSwarm MAILSwarmTemplate SwarmOAIClient action"
    ),
    "mail.core": (
        "ActionCore ActionFunction ActionOverrideFunction AgentCore AgentFunction AgentToolCall "
        "MAILAddress MAILBroadcast MAILInterrupt MAILInterswarmMessage MAILMessage MAILRequest "
        "MAILResponse MAILRuntime MAIL_TOOL_NAMES convert_call_to_mail_message "
        "create_acknowledge_broadcast_tool create_admin_address create_agent_address "
        "create_broadcast_tool create_ignore_broadcast_tool create_interrupt_tool "
        "create_mail_tools create_request_tool create_response_tool create_supervisor_tools "
        "create_system_address create_task_complete_tool create_user_address format_agent_address "
        "parse_agent_address pydantic_model_to_tool"
    ),
    "mail.core.actions": (
        "ActionCore ActionFunction ActionOverrideFunction ActionFailure ActionResult"
    ),
    "mail.core.agents": "AgentCore AgentFunction AgentOutput ToolChoice",
    "mail.core.message": (
        "MAILAddress MAILBroadcast MAILInterrupt MAILInterswarmMessage MAILMessage MAILRequest "
        "MAILResponse MAIL_ALL_LOCAL_AGENTS MAIL_MESSAGE_TYPES build_body_xml "
        "build_interswarm_mail_xml build_mail_xml create_admin_address create_agent_address "
        "create_system_address create_user_address format_agent_address parse_agent_address "
        "parse_task_contributor parse_task_contributors AddressType Composer Contributor Envelope "
        "MAILPayload MessageKind Subject check_task_id create_address format_contributor "
        "get_address_string get_address_type parse_interswarm_message parse_message"
    ),
    "mail.core.runtime": (
        "MAILRuntime FollowedRun Run RunEnd RunRequest RunResult RuntimeSettings UNSET"
    ),
    "mail.core.tasks": "MAILTask TaskState",
    "mail.core.tools": (
        "AgentToolCall MAIL_TOOL_NAMES convert_call_to_mail_message create_await_message_tool "
        "create_help_tool create_mail_tools create_supervisor_tools get_tool_help "
        "get_tool_spec_name normalize_breakpoint_tool_call pydantic_model_to_tool "
        "pydantic_function_tool _make_tools CATALOGUE build_mail_help_string "
        "create_acknowledge_broadcast_tool create_broadcast_tool create_ignore_broadcast_tool "
        "create_interrupt_tool create_request_tool create_response_tool create_search_memory_tool "
        "create_task_complete_tool"
    ),
    "mail.factories": (
        "ActionAgentFunction AgentFunction LiteLLMActionAgentFunction LiteLLMAgentFunction "
        "LiteLLMSupervisorFunction MAILAgentFunction SupervisorFunction action_agent_factory "
        "base_agent_factory supervisor_factory"
    ),
    "mail.factories.base": (
        "LiteLLMAgentFunction MAILAgentFunction base_agent_factory AgentFunction AgentToolCall "
        "CallOptions PEERS_HEADLINE ReasoningEffort ToolFormat deprecated_factory"
    ),
    "mail.factories.action": "ActionAgentFunction LiteLLMActionAgentFunction action_agent_factory",
    "mail.factories.supervisor": "LiteLLMSupervisorFunction SupervisorFunction supervisor_factory",
    "mail.swarms_json": (
        "build_action_from_swarms_json build_agent_from_swarms_json build_swarm_from_swarms_json "
        "build_swarms_from_swarms_json load_swarms_json_from_file load_swarms_json_from_string "
        "SwarmsJSONAction SwarmsJSONAgent SwarmsJSONFile SwarmsJSONSwarm"
    ),
    "mail.swarms_json.utils": (
        "validate_action_from_swarms_json validate_agent_from_swarms_json "
        "validate_swarm_from_swarms_json ImportAction build_action_from_swarms_json "
        "build_agent_from_swarms_json build_swarm_from_swarms_json build_swarms_from_swarms_json "
        "load_swarms_json_from_file load_swarms_json_from_string"
    ),
    "mail.utils": (
        "caller_is_admin caller_is_admin_or_user caller_is_agent caller_is_user extract_token "
        "extract_token_info get_langmem_store get_loggers get_protocol_version get_token_info "
        "get_version init_logger login read_python_string resolve_prefixed_string_references "
        "target_address_is_interswarm generate_agent_id generate_user_id require_debug"
    ),
    "mail.utils.auth": (
        "caller_is_admin caller_is_admin_or_user caller_is_agent caller_is_user "
        "extract_token_info generate_agent_id generate_user_id get_token_info login extract_token "
        "require_debug require_role"
    ),
    "mail.utils.logger": (
        "get_loggers init_logger DailyFileHandler FORMATS JSONFormatter LEVELS LineFormatter redact"
    ),
    "mail.utils.parsing": (
        "read_python_string read_url_string target_address_is_interswarm PYTHON_PREFIX "
        "ReferencePolicy TRUSTED URL_PREFIX resolve_prefixed_string_references"
    ),
    "mail.utils.store": "get_langmem_store DEFAULT_OWNER MailStore",
    "mail.store": "get_langmem_store",
    "mail.client": "ClientConfig MAILClient",
    "mail.config": (
        "ClientConfig ServerConfig FsConfig HttpConfig LimitsConfig SettingsConfig StdlibConfig "
        "StoreConfig SwarmConfig"
    ),
    "mail.server": "app create_app run_server",
    "mail.net": "InterswarmRouter SwarmRegistry",
    "mail.net.registry": "SwarmRegistry",
    "mail.net.router": "InterswarmRouter",
    "mail.net.types": (
        "SwarmEndpoint GetSwarmsResponse PostSwarmsResponse PostSwarmsLoadResponse "
        "GetSwarmsDumpResponse SwarmEndpointCleaned PostInterswarmMessageResponse "
        "PostInterswarmForwardResponse PostInterswarmBackResponse GetHealthResponse "
        "GetRootResponse GetStatusResponse GetWhoamiResponse PostMessageResponse SwarmInfo "
        "BreakpointCall ErrorAnswer EventData FieldProblem LoggedEvent LoginResponse ServerEvent "
        "StreamEvent SwarmStatus TaskPage TaskRecord TaskUsage TokenInfo TokenUsage"
    ),
    "mail.stdlib.fs.actions": "create_directory delete_file read_directory read_file write_file",
    "mail.stdlib.http.actions": (
        "http_delete http_get http_head http_options http_patch http_post http_put"
    ),
    "mail.stdlib.mcp.actions": (
        "mcp_call_tool mcp_get_prompt mcp_list_prompts mcp_list_resources mcp_list_tools mcp_ping "
        "mcp_read_resource"
    ),
    "mail.stdlib.interswarm.actions": "get_swarm_health get_swarm_registry ping_swarm",
    "mail.stdlib.openai": (
        "OpenAIChatCompletionsAgentFunction OpenAIChatCompletionsSupervisorFunction "
        "OpenAIResponsesAgentFunction OpenAIResponsesSupervisorFunction OpenAIModel"
    ),
    "mail.examples": "supervisor weather_dummy math_dummy consultant_dummy analyst_dummy",
    "mail.examples.analyst_dummy.agent": "LiteLLMAnalystFunction",
    "mail.examples.analyst_dummy.prompts": "SYSPROMPT",
    "mail.examples.math_dummy.agent": "LiteLLMMathFunction",
    "mail.examples.math_dummy.actions": "calculate_expression",
    "mail.examples.weather_dummy.agent": "LiteLLMWeatherFunction",
    "mail.examples.weather_dummy.actions": "get_weather_forecast",
    "mail.examples.mafia.game": "Game",
    "mail.examples.mafia.narrator_tools": "get_narrator_actions",
    "mail.examples.mafia.roles": "calculate_roles",
    "mail.cli": "main",
    "mail.db": "MemoryStore PostgresStore SQLiteStore Store open_store",
    "mail.errors": (
        "AddressError AgentError AlreadyAnswered AuthError AuthUnavailable BreakpointError "
        "BudgetExceeded ClientDecodeError ClientError ClientHTTPError ConfigError Forbidden "
        "KeyTaken MAILError ModelError ProtocolError ShuttingDown StepFailed StoreConflict "
        "StoreError StoreLocked TaskError TaskFailed TaskPaused TaskTimeout ToolError "
        "Unauthenticated UnknownAgent UnknownTask WrongReference"
    ),
    "mail.llm": (
        "ChatModel Delta FunctionCall LLMSettings LiteLLMModel ModelReply ModelRequest "
        "RetryPolicy ScriptView ScriptedModel call fail model_for otherwise say think when"
    ),
    "mail.llm.script": (
        "Call Fail Maker Rule Say Script Step Think Unfinished call call_text fail otherwise "
        "run_script say think when"
    ),
    "mail.llm.script_view": "Mail ScriptView ToolResult",
    "mail.testing": (
        "FakeClock KillPoint KillingStore LoopbackPeer Outcome RecordingModel ScriptedSwarm "
        "agent_from assert_not_shown assert_shown replies run_until_complete scripted_swarm "
        "shown_to tool_calls"
    ),
    "mail.utils.openai": "ResponseRequest ResponsesBridge ResponsesError SwarmOAIClient",
    "mail.clock": "Clock SystemClock format_uuid",
    "mail.version": "PROTOCOL_VERSION VERSION get_protocol_version get_version",
}
"""Module to the names that the documents, or 1.3.6 as first released, promise in it."""

METHODS: dict[str, str] = {
    "mail.api:MAILAction": (
        "from_pydantic_model from_swarm_json to_tool_dict to_pydantic_model to_core"
    ),
    "mail.api:MAILAgent": "__call__ to_core _to_template _validate",
    "mail.api:MAILAgentTemplate": (
        "instantiate from_swarm_json from_example _top_level_params _validate"
    ),
    "mail.api:MAILSwarm": (
        "post_message post_message_stream post_message_and_run submit_message "
        "submit_message_nowait submit_message_stream run_continuous shutdown start_interswarm "
        "stop_interswarm is_interswarm_running handle_interswarm_response route_interswarm_message "
        "receive_interswarm_message send_interswarm_message post_interswarm_user_message "
        "get_pending_requests get_response_message get_events get_all_tasks get_task_by_id "
        "update_from_adjacency_matrix get_subswarm build_message manual_step await_queue_empty "
        "load_agent_histories_from_db load_tasks_from_db adjacency_matrix"
    ),
    "mail.api:MAILSwarmTemplate": (
        "instantiate get_subswarm update_from_adjacency_matrix from_swarm_json "
        "from_swarm_json_file start_server _build_adjacency_matrix _validate"
    ),
    "mail.core.tools:AgentToolCall": "create_response_msg",
    "mail.net:InterswarmRouter": (
        "start stop is_running register_message_handler route_message _route_to_local_agent "
        "_route_to_remote_swarm _create_local_message _create_remote_message "
        "_system_router_message"
    ),
    "mail.net:SwarmRegistry": (
        "register_local_swarm register_swarm unregister_swarm get_swarm_endpoint "
        "get_resolved_auth_token get_all_endpoints get_active_endpoints get_persistent_endpoints "
        "get_public_endpoints save_persistent_endpoints load_persistent_endpoints "
        "cleanup_volatile_endpoints start_health_checks stop_health_checks discover_swarms "
        "_get_auth_token_ref _resolve_auth_token_ref migrate_auth_tokens_to_env_refs "
        "validate_environment_variables to_dict from_dict"
    ),
    "mail.core.runtime:MAILRuntime": (
        "start_interswarm stop_interswarm is_interswarm_running handle_interswarm_response "
        "_handle_local_message run run_continuous submit submit_and_wait submit_and_stream "
        "shutdown get_events_by_task_id get_task_by_id get_response_message pending_requests "
        "events response_queue message_queue this_owner agent_histories"
    ),
    "mail.core.tasks:MAILTask": (
        "get_messages get_messages_by_agent get_messages_by_type get_messages_by_system "
        "get_messages_by_user get_lifetime"
    ),
    "mail.client:MAILClient": (
        "ping get_status get_whoami get_health post_message post_message_stream get_tasks get_task "
        "get_swarms register_swarm dump_swarm load_swarm_from_json post_interswarm_message "
        "post_interswarm_response send_interswarm_message debug_post_responses aclose"
    ),
}
"""Class to its methods and properties."""

PARAMETERS: dict[str, str] = {
    "mail.api:MAILAction.from_pydantic_model": "model function name description",
    "mail.api:action": "name description model parameters style",
    "mail.api:MAILAgent": (
        "name factory actions function comm_targets agent_params enable_entrypoint "
        "enable_interswarm can_complete_tasks tool_format exclude_tools"
    ),
    "mail.api:MAILAgentTemplate": (
        "name factory comm_targets actions agent_params enable_entrypoint enable_interswarm "
        "can_complete_tasks tool_format exclude_tools"
    ),
    "mail.api:MAILAgentTemplate.from_example": "name comm_targets",
    "mail.api:MAILSwarm": (
        "name version agents actions entrypoint user_id user_role swarm_registry "
        "enable_interswarm breakpoint_tools exclude_tools task_message_limit description keywords "
        "enable_db_agent_histories print_llm_streams"
    ),
    "mail.api:MAILSwarm.manual_step": (
        "task_id target response_targets response_type payload dynamic_ctx_ratio _llm _system"
    ),
    "mail.api:MAILSwarm.build_message": "subject body targets sender_type type task_id",
    "mail.api:MAILSwarm.get_subswarm": "names name_suffix entrypoint",
    "mail.api:MAILSwarm.run_continuous": "max_steps action_override mode",
    "mail.api:MAILSwarm.post_message": (
        "body subject msg_type entrypoint show_events timeout task_id resume_from"
    ),
    "mail.api:MAILSwarm.post_message_and_run": (
        "body subject msg_type entrypoint show_events task_id resume_from max_steps"
    ),
    "mail.api:MAILSwarmTemplate": (
        "name version agents actions entrypoint enable_interswarm breakpoint_tools exclude_tools "
        "task_message_limit description keywords public enable_db_agent_histories"
    ),
    "mail.api:MAILSwarmTemplate.instantiate": (
        "instance_params user_id user_role base_url registry_file print_llm_streams"
    ),
    "mail.api:MAILSwarmTemplate.start_server": (
        "port host launch_ui ui_port ui_path open_browser server_url"
    ),
    "mail.core.runtime:MAILRuntime": (
        "agents actions user_id user_role swarm_name entrypoint swarm_registry enable_interswarm "
        "breakpoint_tools exclude_tools enable_db_agent_histories print_llm_streams"
    ),
    "mail.core.tools:pydantic_model_to_tool": "model_cls name description style",
    "mail.net:InterswarmRouter": "swarm_registry local_swarm_name",
    "mail.net:SwarmRegistry": (
        "local_swarm_name local_base_url persistence_file local_swarm_description "
        "local_swarm_keywords local_swarm_public"
    ),
}
"""Callable to the parameters that the documents name; test_signatures.py has whole signatures."""


def find(path: str) -> Any:
    """Return what is at ``module:name.name``."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("module", NAMES)
def test_promised_names_are_there(module: str) -> None:
    found = importlib.import_module(module)
    missing = []
    for name in NAMES[module].split():
        try:
            getattr(found, name)
        except AttributeError:
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("owner", METHODS)
def test_promised_methods_are_there(owner: str) -> None:
    found = find(owner)
    here = inspect.getmembers_static(found)
    names = {name for name, _ in here}
    assert [name for name in METHODS[owner].split() if name not in names] == []


@pytest.mark.parametrize("path", PARAMETERS)
def test_promised_parameters_are_accepted(path: str) -> None:
    parameters = inspect.signature(find(path)).parameters
    expected = PARAMETERS[path].split()
    assert [name for name in expected if name not in parameters] == []
