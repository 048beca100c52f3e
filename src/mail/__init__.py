"""MAIL: agents of a swarm write to each other through priority mailboxes."""

from mail.lazy import lazy_exports

__all__ = [
    "AgentToolCall",
    "Approval",
    "MAILAction",
    "MAILAgent",
    "MAILAgentTemplate",
    "MAILBroadcast",
    "MAILInterrupt",
    "MAILInterswarmMessage",
    "MAILMessage",
    "MAILRequest",
    "MAILResponse",
    "MAILRuntime",
    "MAILSwarm",
    "MAILSwarmTemplate",
    "SwarmOAIClient",
    "action",
]

__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(
            ("MAILAction", "MAILAgent", "MAILAgentTemplate", "MAILSwarm", "MAILSwarmTemplate"),
            "mail.api",
        ),
        "action": "mail.api",
        "AgentToolCall": "mail.core.tools.call",
        "Approval": "mail.core.approvals",
        "MAILRuntime": "mail.core.runtime",
        "SwarmOAIClient": "mail.responses_api",
        **dict.fromkeys(
            (
                "MAILBroadcast",
                "MAILInterrupt",
                "MAILInterswarmMessage",
                "MAILMessage",
                "MAILRequest",
                "MAILResponse",
            ),
            "mail.core.message",
        ),
    },
)
