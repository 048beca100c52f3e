"""Where the pieces of a turn's model call go: to streams that asked, to the console, to memory."""

from mail.core.call_context import NullSink, StreamSink
from mail.core.runtime.delivery import PostOffice
from mail.core.runtime.turn import Turn

__all__ = ["TurnSink"]


class TurnSink:
    """Passes pieces on until the turn is interrupted; after that, not one more."""

    def __init__(self, turn: Turn, post_office: PostOffice, console: StreamSink) -> None:
        self._turn = turn
        self._post_office = post_office
        self._console = console

    def text(self, delta: str) -> None:
        """Take a piece of the answer."""
        if not self._turn.abandoned:
            self._turn.partial.append(delta)
            self._post_office.delta(self._turn, "text", delta)
            self._console.text(delta)

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's reasoning."""
        if not self._turn.abandoned:
            self._post_office.delta(self._turn, "reasoning", delta)
            self._console.reasoning(delta)

    def restart(self) -> None:
        """Forget the pieces so far and tell the streams to do the same."""
        if not self._turn.abandoned:
            self._turn.partial.clear()
            self._post_office.delta(self._turn, "restart", "")
            self._console.restart()

    def without_console(self) -> StreamSink:
        """Return the same sink, silent on the console."""
        return TurnSink(self._turn, self._post_office, NullSink())
