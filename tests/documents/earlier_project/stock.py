"""An action and a scripted model."""

from pydantic import BaseModel, Field

from mail import MAILAction
from mail.llm import call, otherwise, when


class StockArgs(BaseModel):
    """How many of something there are."""

    item: str = Field(description="What to count.")


async def count(args: dict[str, str]) -> str:
    return f"The stock of {args['item']} is 12."


count_stock = MAILAction.from_pydantic_model(model=StockArgs, function=count, name="count_stock")

SCRIPT = [
    when(tool_result="count_stock").then(
        lambda view: call("task_complete", finish_message=str(view.result_of("count_stock")))
    ),
    otherwise(call("count_stock", item="apples")),
]
