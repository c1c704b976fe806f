"""Pictures as they are sent: URLs as they are, files as `data:` URIs."""

import mimetypes
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from dragoman.client.errors import ClientError

ImageLike = str | Path
"""A path, or a URL that begins with `https:`, `http:` or `data:`."""

MAX_IMAGE_BYTES = 12 * 1024 * 1024
"""Of a file: with base64 it just fits into what servers take as one message."""


class InvalidImage(ClientError, ValueError):
    """A path that leads to no picture that could be sent."""


def to_image_urls(images: Iterable[ImageLike]) -> tuple[str, ...]:
    """The URLs of pictures; files are read. Raises NoImage."""
    return tuple(_to_image_url(each) for each in images)


def _to_image_url(image: ImageLike) -> str:
    if isinstance(image, str) and image.startswith(("https:", "http:", "data:")):
        return image
    path = Path(image).expanduser()
    kind = mimetypes.guess_type(path.name)[0] or ""
    if not kind.startswith("image/"):
        raise InvalidImage(f"a picture's file was expected, by its ending, got {path}")
    try:
        size = path.stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise InvalidImage(f"a picture of at most {MAX_IMAGE_BYTES} bytes was expected, {path} has {size}")
        content = path.read_bytes()
    except OSError as error:
        raise InvalidImage(f"{path} cannot be read: {error.strerror}") from error
    return f"data:{kind};base64,{b64encode(content).decode()}"
