"""Helpers around the server: tokens, logging, references, versions; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "caller_is_admin",
    "caller_is_admin_or_user",
    "caller_is_agent",
    "caller_is_user",
    "extract_token",
    "extract_token_info",
    "generate_agent_id",
    "generate_user_id",
    "get_langmem_store",
    "get_loggers",
    "get_protocol_version",
    "get_token_info",
    "get_version",
    "init_logger",
    "login",
    "read_python_string",
    "require_debug",
    "resolve_prefixed_string_references",
    "target_address_is_interswarm",
]

_MODULES = {
    "mail.auth.guards": (
        "caller_is_admin",
        "caller_is_admin_or_user",
        "caller_is_agent",
        "caller_is_user",
        "extract_token",
        "extract_token_info",
        "generate_agent_id",
        "generate_user_id",
        "get_token_info",
        "login",
        "require_debug",
    ),
    "mail.logs.setup": ("get_loggers", "init_logger"),
    "mail.swarms_json.references": (
        "read_python_string",
        "resolve_prefixed_string_references",
        "target_address_is_interswarm",
    ),
    "mail.utils.store": ("get_langmem_store",),
    "mail.version": ("get_protocol_version", "get_version"),
}

__getattr__ = lazy_exports(
    __name__, {name: module for module, names in _MODULES.items() for name in names}
)
