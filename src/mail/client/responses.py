"""What ``POST /responses`` answers, as the OpenAI SDK's own type."""

import json
from typing import TYPE_CHECKING, Any

from mail.errors import ClientDecodeError

if TYPE_CHECKING:
    from openai.types.responses import Response

__all__ = ["read_response"]


def read_response(answer: Any) -> "Response":
    """Return the response in an answer's JSON; servers of MAIL 1.3.6 wrap it in a string.

    Raises:
        ClientDecodeError: it is none.
    """
    from openai.types.responses import Response
    from pydantic import ValidationError

    if isinstance(answer, str):
        try:
            answer = json.loads(answer)
        except ValueError as error:
            raise ClientDecodeError("expected a response object, got text") from error
    try:
        return Response.model_validate(answer)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the answer"
        raise ClientDecodeError(f"not an OpenAI response: {place}: {problem['msg']}") from error
