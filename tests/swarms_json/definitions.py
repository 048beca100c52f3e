"""A good swarms file to break, and the formal schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "swarms-schema.json"


@cache
def schema() -> Draft202012Validator:
    """Return a validator of the formal schema."""
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def fits(definition: object) -> bool:
    """Tell whether the formal schema accepts a definition."""
    return schema().is_valid(definition)


def good() -> list[dict[str, Any]]:
    """Return a file of two swarms, with every field that there is."""
    factory = "python::mail.factories:LiteLLMAgentFunction"
    full = {
        "name": "office",
        "version": "1.3.6",
        "description": "A small office",
        "keywords": ["office"],
        "public": True,
        "entrypoint": "boss",
        "enable_interswarm": False,
        "enable_db_agent_histories": False,
        "breakpoint_tools": ["send_payment"],
        "exclude_tools": ["send_interrupt"],
        "participants": [{"name": "editor", "description": "Edits."}, {"name": "reviewer"}],
        "teams": [{"id": "alpha", "lead": "boss", "members": ["clerk", "editor"]}],
        "agents": [
            {
                "name": "boss",
                "factory": "python::mail.factories:LiteLLMSupervisorFunction",
                "comm_targets": ["clerk", "analyst"],
                "enable_entrypoint": True,
                "enable_interswarm": False,
                "can_complete_tasks": True,
                "tool_format": "completions",
                "agent_params": {
                    "llm": "openai/gpt-5-mini",
                    "system": "Lead.",
                    "default_tool_choice": {"type": "function", "name": "task_complete"},
                },
            },
            {
                "name": "clerk",
                "factory": factory,
                "comm_targets": ["boss"],
                "actions": ["send_payment", "get_weather_forecast"],
                "exclude_tools": ["help"],
                "agent_params": {"llm": "openai/gpt-5-mini"},
            },
            {
                "name": "analyst",
                "factory": factory,
                "comm_targets": ["boss", "clerk"],
                "agent_params": {"llm": "openai/gpt-5-mini"},
            },
        ],
        "actions": [
            {
                "name": "send_payment",
                "description": "Pay an amount.",
                "parameters": {
                    "type": "object",
                    "properties": {"amount": {"type": "integer"}},
                    "required": ["amount"],
                },
                "function": "python::json:dumps",
                "idempotent": False,
                "timeout": 30,
                "completes": True,
                "untrusted": True,
            }
        ],
        "action_imports": [
            "python::mail.examples.weather_dummy.actions:get_weather_forecast_action"
        ],
    }
    small = {
        "name": "till",
        "version": "1.0.0",
        "entrypoint": "cashier",
        "agents": [
            {
                "name": "cashier",
                "factory": factory,
                "comm_targets": [],
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                "agent_params": {"llm": "openai/gpt-5-mini"},
            }
        ],
        "actions": [],
    }
    return [full, small]
