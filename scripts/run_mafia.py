"""A game of Mafia among agents, step by step in manual mode, before your eyes.

::

    python scripts/run_mafia.py                                   # offline, players follow a script
    python scripts/run_mafia.py --players 8 --seed 7              # the same game every time
    python scripts/run_mafia.py --llm openai/gpt-5-mini           # a model plays everybody
    python scripts/run_mafia.py --llm openai/gpt-5-mini --llm anthropic/claude-sonnet-4-5
    python scripts/run_mafia.py --interactive                     # stop before every step

You see everything, the secrets included; the players do not. With several models, each player is
dealt one, and the narrator gets the first. The exit code is 0 when the game came to its end.
"""

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Sequence

from mail.errors import MAILError
from mail.examples.mafia.game import Game
from mail.examples.mafia.roles import MAX_PLAYERS, MIN_PLAYERS


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Let agents play a game of Mafia.")
    parser.add_argument(
        "-n", "--players", type=int, default=8, metavar="N",
        help=f"how many players, {MIN_PLAYERS} to {MAX_PLAYERS} (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, help="deals roles and names; a scripted game repeats (default: random)"
    )
    parser.add_argument(
        "--llm", action="append", default=[], metavar="MODEL",
        help="a LiteLLM model, its key in the environment; may be given several times "
        "(default: a script, offline)",
    )  # fmt: skip
    parser.add_argument(
        "-i", "--interactive", action="store_true",
        help="stop before every step, and add to what the agent is told",
    )  # fmt: skip
    parser.add_argument(
        "--store", metavar="URL", help="keep the mail, for example in sqlite:///mafia.db"
    )
    return parser.parse_args(arguments)


async def play(options: argparse.Namespace) -> int:
    """Play a game and print it; return the exit code."""
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    models = options.llm or list(filter(None, [os.environ.get("MAIL_LLM")]))
    print(f"Mafia for {options.players}, seed {seed}, {', '.join(models) or 'scripted (offline)'}.")
    game = Game.create(
        options.players,
        models,
        seed=seed,
        store=options.store,
        print=lambda line: print(line, flush=True),
        interactive=options.interactive,
    )
    async with game:
        result = await game.run()
    if game.called_off:
        print(f"The game was {result.reason}.", file=sys.stderr)
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return the exit code: 0, 1 if it was called off, 2 for errors."""
    options = read_arguments(arguments)
    try:
        return asyncio.run(play(options))
    except MAILError as error:
        print(f"run_mafia: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("\nThe town goes home.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
