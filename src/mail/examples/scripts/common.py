"""Helpers of the scripts: the progress of a question, and the calls that every agent makes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from mail.core.compose import Subject
from mail.llm.script import Call, call
from mail.llm.script_view import Mail, ScriptView

_PEOPLE: Final = ("user", "admin")


@dataclass(frozen=True, slots=True)
class Case:
    """The newest question of a person, and the mail that came in since then, oldest first."""

    question: Mail
    since: tuple[Mail, ...]

    @property
    def fresh(self) -> bool:
        """Tell whether nothing has come in since the question."""
        return not self.since

    @property
    def newest(self) -> Mail:
        """The newest mail of all."""
        return self.since[-1] if self.since else self.question

    @property
    def answers(self) -> Mapping[str, str]:
        """Each agent's last text."""
        return {mail.sender: mail.body for mail in self.since if mail.sender_type == "agent"}

    def failures(self, workers: Collection[str]) -> dict[str, str]:
        """Return what the system said of workers, or of the swarms they are in, by their names."""
        return {
            worker: mail.body
            for mail in self.since
            if mail.sender_type == "system" and mail.subject != Subject.DELIVERY_DELAYED
            for worker in workers
            if _is_about(worker, mail.body)
        }

    def stuck(self, workers: Collection[str]) -> bool:
        """Tell whether the system wants an end, for a reason that is none of the workers'."""
        newest = self.newest
        told = newest.sender_type == "system" and newest.subject != Subject.DELIVERY_DELAYED
        return told and not self.failures(workers)

    def missing(self, workers: Collection[str]) -> list[str]:
        """Return the workers that have neither answered nor failed."""
        known = {*self.answers, *self.failures(workers)}
        return [worker for worker in workers if worker not in known]

    def silence_of(self, worker: str, workers: Collection[str]) -> str:
        """Return a sentence on a worker without an answer, with the reason if there is one."""
        said = self.newest.body if self.newest.sender_type == "system" else ""
        reason = " ".join(self.failures(workers).get(worker, said).split())
        return f"I got no answer from '{worker}'{f' ({reason})' if reason else ''}."


def read_case(view: ScriptView) -> Case:
    """Find the newest question of a person in a conversation."""
    at = max((n for n, mail in enumerate(view.mails) if mail.sender_type in _PEOPLE), default=0)
    question = view.mails[at] if view.mails else view.mail
    return Case(question, view.mails[at + 1 :])


def _is_about(worker: str, notice: str) -> bool:
    """Tell whether a notice of the system names a worker, or the other swarm that it is in."""
    swarm = worker.partition("@")[2]
    names = (worker, f"swarm '{swarm}'") if swarm else (f"'{worker}'",)
    return any(name in notice for name in names)


def wait_for(workers: Collection[str]) -> Call:
    """Return the call that waits for answers."""
    return call("await_message", reason=f"waiting for {' and '.join(workers)}")


def reply(request: Mail, text: str) -> Call:
    """Return the call that answers a request."""
    return call("send_response", target=request.sender, subject=f"Re: {request.subject}", body=text)


def results_of(view: ScriptView, tool: str) -> list[str]:
    """Return a tool's results since the agent's last reply; an error says that there is none."""
    return [plain(result.content) for result in view.new_results if result.tool == tool]


def plain(content: str) -> str:
    """Return the text of a tool's result without the word that says how it went."""
    if content.startswith("ERROR"):
        return "no result (" + content.partition(": ")[2] + ")"
    return content.removeprefix("SUCCESS: ")
