"""Turns images into URLs: files become `data:` URIs, URLs stay as they are."""

import mimetypes
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from dragoman.client.errors import ClientError

ImageLike = str | Path
"""A path, or a URL that begins with `https:`, `http:` or `data:`."""

MAX_IMAGE_BYTES = 12 * 1024 * 1024
"""Largest file. Encoded as base64 it just fits into the servers' limit for a request."""


class InvalidImage(ClientError, ValueError):
    """A path does not name an image file that can be sent."""


def to_image_urls(images: Iterable[ImageLike]) -> tuple[str, ...]:
    """Return the images as URLs, reading files. Raises InvalidImage."""
    return tuple(_to_image_url(each) for each in images)


def _to_image_url(image: ImageLike) -> str:
    if isinstance(image, str) and image.startswith(("https:", "http:", "data:")):
        return image
    path = Path(image).expanduser()
    kind = mimetypes.guess_type(path.name)[0] or ""
    if not kind.startswith("image/"):
        raise InvalidImage(f"expected an image file by its extension, got {path}")
    try:
        size = path.stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise InvalidImage(f"expected an image of at most {MAX_IMAGE_BYTES} bytes, {path} has {size}")
        content = path.read_bytes()
    except OSError as error:
        raise InvalidImage(f"cannot read {path}: {error.strerror}") from error
    return f"data:{kind};base64,{b64encode(content).decode()}"
