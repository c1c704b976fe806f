"""What the agent has said in its current step, which is repeated if a crash of the server cuts it off. Pure."""

from dragoman.client.events import Restarted, Text, Thinking


class NewestSteps:
    """The text and reasoning of the newest step of each loop."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[str, list[Text | Thinking]]] = {}
        """By loop: the step's id, and what was said in it."""

    def add(self, step: str, event: Text | Thinking) -> tuple[Text | Thinking]:
        """Add what is said in a step. Returns the event."""
        newest, said = self._steps.get(event.loop, ("", []))
        if newest == step:
            said.append(event)
        else:
            self._steps[event.loop] = (step, [event])
        return (event,)

    def cut(self, step: str, loop: str) -> tuple[Restarted, ...]:
        """End a step that was interrupted, unless that is known."""
        newest, said = self._steps.get(loop, ("", []))
        if newest != step:
            return ()
        del self._steps[loop]
        text = "".join(each.text for each in said if isinstance(each, Text))
        thinking = "".join(each.text for each in said if isinstance(each, Thinking))
        return (Restarted(text=text, thinking=thinking, loop=loop),)
