"""The documented import path of the authentication helpers."""

from mail.auth.guards import (
    caller_is_admin,
    caller_is_admin_or_user,
    caller_is_agent,
    caller_is_user,
    extract_token,
    extract_token_info,
    generate_agent_id,
    generate_user_id,
    get_token_info,
    login,
    require_debug,
    require_role,
)

__all__ = [
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
    "require_role",
]
