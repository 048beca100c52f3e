"""The party game Mafia among agents: manual mode with private mail, secret roles, and a narrator.

::

    async with Game.create(8, seed=7, print=print) as game:
        result = await game.run()

Offline everybody follows a script; ``llm="openai/gpt-5-mini"`` lets a model play.
"""

from mail.lazy import lazy_exports

__all__ = ["Agent", "Game", "GamePhase", "GameResult", "NarratorError", "Winner", "calculate_roles"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Agent": "mail.examples.mafia.state",
        "Game": "mail.examples.mafia.game",
        "NarratorError": "mail.examples.mafia.choices",
        "calculate_roles": "mail.examples.mafia.roles",
        **dict.fromkeys(("GamePhase", "GameResult", "Winner"), "mail.examples.mafia.state"),
    },
)
