"""`SwarmOAIClient`: a swarm in one's own process that is asked like OpenAI's client."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, overload

from mail.api import MAILSwarm, MAILSwarmTemplate
from mail.db.records import Owner
from mail.responses_api.bridge import ResponsesBridge
from mail.responses_api.records import Records
from mail.responses_api.request import ResponseRequest

if TYPE_CHECKING:
    from openai.types.responses import Response, ResponseStreamEvent


class SwarmOAIClient:
    """A swarm with ``client.responses.create(...)``, like ``openai.AsyncOpenAI``.

    Args:
        template: The swarm's template; its name is what responses call the model.
        instance: A swarm to use; made from the template at the first request when None.
        validate_responses: Whether answers are checked against OpenAI's types.

    What is known of past responses is kept in memory, for as long as this object lives.
    """

    def __init__(
        self,
        template: MAILSwarmTemplate,
        instance: MAILSwarm | None = None,
        validate_responses: bool = True,
    ) -> None:
        self.template = template
        self.swarm = instance
        self.validate_responses = validate_responses
        self._owned: MAILSwarm | None = None
        self._bridge: ResponsesBridge | None = None
        self.responses = Responses(self)

    @property
    def bridge(self) -> ResponsesBridge:
        """The bridge to the swarm, which is made now if it was not yet."""
        if self.swarm is None:
            self.swarm = self._owned = self.template.instantiate({"user_token": ""})
        if self._bridge is None:
            from mail.db.memory import MemoryStore

            records = Records(MemoryStore(), Owner(self.template.name, "user", "responses"))
            self._bridge = ResponsesBridge(self.swarm, records, self.template.name)
        return self._bridge

    async def aclose(self) -> None:
        """Stop the swarm, if it was made here."""
        if self._owned is not None:
            await self._owned.shutdown()

    async def __aenter__(self) -> "SwarmOAIClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class Responses:
    """``client.responses``."""

    def __init__(self, owner: SwarmOAIClient) -> None:
        self._owner = owner

    @overload
    async def create(
        self,
        input: str | Sequence[Any],
        tools: Sequence[Any] = (),
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | dict[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        api_key: str | None = None,
        *,
        stream: Literal[False] = False,
        **kwargs: Any,
    ) -> "Response": ...
    @overload
    async def create(
        self,
        input: str | Sequence[Any],
        tools: Sequence[Any] = (),
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | dict[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        api_key: str | None = None,
        *,
        stream: Literal[True],
        **kwargs: Any,
    ) -> "AsyncIterator[ResponseStreamEvent]": ...
    async def create(  # noqa: PLR0913 - the documented signature
        self,
        input: str | Sequence[Any],
        tools: Sequence[Any] = (),
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | dict[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        api_key: str | None = None,
        *,
        stream: bool = False,
        **kwargs: Any,
    ) -> "Response | AsyncIterator[ResponseStreamEvent]":
        """Ask the swarm.

        Args:
            input: Text, or input items; ``function_call_output`` items resume.
            tools: Functions that the caller runs itself.
            instructions: Follow the entrypoint's own system prompt.
            previous_response_id: The newest response of the conversation to go on with.
            tool_choice: The functions that the entrypoint may or must call.
            parallel_tool_calls: Whether it may call several of them at once.
            api_key: Taken for the sake of older callers; there is nobody to show it to.
            stream: Return the response's events instead.
            kwargs: More fields of the request: ``metadata``, ``store``, ``text``, ``background``.

        Raises:
            ResponsesError, ProtocolError, TaskError: the request is refused; nothing was started.
        """
        fields = {
            "input": input if isinstance(input, str) else [_plain(item) for item in input],
            "tools": [_plain(tool) for tool in tools],
            "instructions": instructions,
            "previous_response_id": previous_response_id,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "stream": stream,
            **kwargs,
        }
        request = ResponseRequest.from_json(fields)
        bridge = self._owner.bridge
        exchange = await bridge.begin(request, await bridge.plan(request))
        if stream:
            return self._typed(bridge.events(exchange, exchange.run.events()))
        if request.background:
            exchange.run.leave()
            return self._response(exchange.record.response)
        return self._response(await bridge.finish(exchange))

    async def retrieve(self, response_id: str) -> "Response":
        """Return a response as it is now; raises `NoSuchResponse`."""
        found = await self._owner.bridge.retrieve(response_id)
        return self._response(found.response)

    async def delete(self, response_id: str) -> None:
        """Forget a response; raises `NoSuchResponse`. Its task stays."""
        await self._owner.bridge.delete(response_id)

    async def cancel(self, response_id: str) -> "Response":
        """Cancel the task of a response that has not ended; raises `ResponsesError`."""
        await self._owner.bridge.cancel(response_id)
        return await self.retrieve(response_id)

    def _response(self, data: Mapping[str, Any]) -> "Response":
        from openai.types.responses import Response

        if self._owner.validate_responses:
            return Response.model_validate(data)
        return Response.construct(**data)

    async def _typed(
        self, events: AsyncGenerator[dict[str, Any] | None, None]
    ) -> "AsyncGenerator[ResponseStreamEvent, None]":
        from openai.types.responses import ResponseStreamEvent
        from pydantic import TypeAdapter

        read: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
        async with aclosing(events):
            async for event in events:
                if event is not None:
                    yield read.validate_python(event)


def _plain(item: Any) -> Any:
    """Return an item as a dict; those of an earlier response are objects."""
    dump = getattr(item, "model_dump", None)
    return item if dump is None else dump(mode="json", exclude_none=True)
