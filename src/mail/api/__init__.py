"""The builder surface: actions, agents and swarms; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "MAILAction",
    "MAILAgent",
    "MAILAgentTemplate",
    "MAILSwarm",
    "MAILSwarmTemplate",
    "SwarmOAIClient",
    "action",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "MAILAction": "mail.api.actions",
        "MAILAgent": "mail.api.agents",
        "MAILAgentTemplate": "mail.api.agents",
        "MAILSwarm": "mail.api.swarm",
        "MAILSwarmTemplate": "mail.api.swarm",
        "SwarmOAIClient": "mail.responses_api",
        "action": "mail.api.actions",
    },
)
