"""The client's method for ``/responses``, a route that servers offer in debug mode only."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mail.client.http import HTTPClient
from mail.errors import ClientDecodeError

if TYPE_CHECKING:
    from openai.types.responses import Response

__all__ = ["ResponsesClient"]


class ResponsesClient(HTTPClient):
    """Adds OpenAI's Responses API to the client."""

    async def debug_post_responses(
        self,
        input: str | Sequence[Any],
        tools: Sequence[dict[str, Any]] = (),
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> "Response":
        """Call the swarm like OpenAI's ``responses.create`` (``POST /responses``).

        Args:
            input: Text, or input items; ``function_call_output`` items resume.
            tools: Functions that the caller runs.
            instructions: Appended to the entrypoint's own system prompt.
            previous_response_id: The newest response of the conversation to continue.
            tool_choice: Which of the functions may or must be called.
            parallel_tool_calls: Whether the model may call several at once.
            idempotency_key: As in `post_message`.
            **kwargs: Further fields of the request, for example ``metadata`` or ``store``.

        Raises:
            ClientHTTPError: the request failed, or the server is not in debug mode (404).
            ClientDecodeError: the body is not an OpenAI response.
        """
        from openai.types.responses import Response
        from pydantic import ValidationError

        payload = {
            "input": input if isinstance(input, str) else list(input),
            "tools": list(tools),
            "instructions": instructions,
            "previous_response_id": previous_response_id,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            **kwargs,
        }
        answer = await self._request_json(
            "POST", "/responses", payload=payload, idempotency_key=idempotency_key
        )
        try:
            if isinstance(answer, str):  # 1.3.6 sends the object as JSON text
                return Response.model_validate_json(answer)
            return Response.model_validate(answer)
        except ValidationError as error:
            raise ClientDecodeError(f"expected a response in OpenAI's format: {error}") from error
