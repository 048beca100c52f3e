"""A scripted agent that does what its user writes: a JSON list of [tool, arguments], in turn."""

import json

from mail.llm.script import Call, call
from mail.llm.script_view import ScriptView

__all__ = ["ACT"]


def ACT(view: ScriptView) -> Call:
    """Make the next call; in the end, tell all that came of them as JSON."""
    order = json.loads((view.mail_from() or view.mail).body)
    done = [result for result in view.results if result.tool in {tool for tool, _ in order}]
    if len(done) < len(order):
        tool, arguments = order[len(done)]
        return call(tool, **arguments)
    return call("task_complete", finish_message=json.dumps([result.content for result in done]))
