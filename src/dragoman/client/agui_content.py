"""Contents of messages in AG-UI's form. Pure."""

from collections.abc import Sequence

from dragoman.protocols.agui.content import DataSource, ImagePart, Part, TextPart, UrlSource


def to_wire_content(text: str, images: Sequence[str]) -> str | list[Part]:
    """A text with images, given by their URLs."""
    if not images:
        return text
    parts: list[Part] = [TextPart(text=text)] if text else []
    return [*parts, *(ImagePart(source=_to_wire_source(url)) for url in images)]


def _to_wire_source(url: str) -> DataSource | UrlSource:
    head, separator, value = url.partition(";base64,")
    return DataSource(value=value, mime_type=head.removeprefix("data:")) if separator else UrlSource(value=url)
