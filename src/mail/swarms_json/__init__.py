"""Loading and validation of ``swarms.json``; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "SwarmsJSONAction",
    "SwarmsJSONAgent",
    "SwarmsJSONFile",
    "SwarmsJSONSwarm",
    "build_action_from_swarms_json",
    "build_agent_from_swarms_json",
    "build_swarm_from_swarms_json",
    "build_swarms_from_swarms_json",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
]

__getattr__ = lazy_exports(
    __name__,
    {
        name: "mail.swarms_json.types" if name.startswith("Swarms") else "mail.swarms_json.utils"
        for name in __all__
    },
)
