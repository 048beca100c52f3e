"""What a caller of the Responses bridge did wrong, with the words that OpenAI's SDK expects."""

from mail.errors import ProtocolError

__all__ = ["NoSuchModel", "NoSuchResponse", "ResponsesError"]


class ResponsesError(ProtocolError):
    """A request that cannot be carried out as it is; nothing was started.

    Args:
        message: What to change.
        param: The field that is wrong, for example ``input[2].content``.
        code: OpenAI's code for it, if there is one.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NoSuchResponse(ResponsesError):
    """The caller has no response of this id."""

    def __init__(self, response_id: str) -> None:
        shown = response_id[:80]
        super().__init__(f"Response with id '{shown}' not found.", "response_id")


class NoSuchModel(ResponsesError):
    """The server serves no swarm of this name."""

    def __init__(self, name: str) -> None:
        text = f"The model '{name[:80]}' does not exist."
        super().__init__(text, "model", "model_not_found")
