"""Cards that an agent shows beside its text: to which message each belongs, and in which locale. Pure."""

from dragoman.core.content import JsonObject
from dragoman.core.events import CardUpdated, LoggedEvent, RunStarted
from dragoman.core.ids import ROOT, MessageId
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.ui_schema import compile_card


class CardTracker:
    """Assigns cards to messages: to the one that they belong to, else to the run's next one with text."""

    def __init__(self, locale: str = "en") -> None:
        self._locale = locale
        self._schema: JsonObject | None = None
        self.message_id: MessageId | None = None
        """The message that the card belongs to, if the log says so."""

    def feed(self, logged: LoggedEvent) -> None:
        """Take the next event of the log."""
        match logged.event:
            case RunStarted(metadata=metadata):
                self._schema, self._locale = None, locale_of(metadata)
            case CardUpdated(card=card, loop=loop, message_id=message_id) if loop == ROOT:
                if (schema := compile_card(card, self._locale)) is not None:
                    self._schema, self.message_id = schema, message_id

    def take_schema(self) -> JsonObject | None:
        """The compiled card of the message that ends now. A card is given once."""
        schema, self._schema, self.message_id = self._schema, None, None
        return schema


def locale_of(metadata: RunMetadata) -> str:
    """The locale of a run's answers, from the profile as it was when the run began."""
    return metadata.locale or "en"
