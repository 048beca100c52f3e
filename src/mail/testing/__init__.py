"""Tools for tests of a swarm: scripted swarms, a clock, a peer, and recorded calls.

Ships with the package, so that users test their swarms with the same pieces as we do ours.
"""

from mail.lazy import lazy_exports

__all__ = [
    "FakeClock",
    "HistoryGuard",
    "KillPoint",
    "KillingStore",
    "LegacyPeer",
    "LoopbackPeer",
    "Outcome",
    "RecordedCall",
    "RecordedCalls",
    "RecordingModel",
    "ScriptedSwarm",
    "agent_from",
    "assert_not_shown",
    "assert_shown",
    "recorded_calls",
    "replies",
    "run_until_complete",
    "scripted_swarm",
    "shown_to",
    "tool_calls",
]

__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(
            ("FakeClock", "HistoryGuard", "KillPoint", "KillingStore"), "mail.testing.doubles"
        ),
        **dict.fromkeys(("agent_from", "replies", "tool_calls"), "mail.testing.doubles"),
        **dict.fromkeys(("LegacyPeer", "LoopbackPeer"), "mail.testing.peer"),
        **dict.fromkeys(("RecordedCall", "RecordedCalls", "recorded_calls"), "mail.llm.recording"),
        **dict.fromkeys(
            ("Outcome", "RecordingModel", "ScriptedSwarm", "run_until_complete", "scripted_swarm"),
            "mail.testing.swarms",
        ),
        **dict.fromkeys(("assert_not_shown", "assert_shown", "shown_to"), "mail.testing.swarms"),
    },
)
