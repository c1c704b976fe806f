"""The media types of images and files. Pure."""

import mimetypes

from dragoman.core.content import File, Image, parse_data_uri


def media_type_of(block: Image | File) -> str:
    """The media type of a file: as declared, that of its `data:` URI, or a guess by the ending of its path."""
    if isinstance(block, File) and block.media_type:
        return block.media_type
    if (uri := parse_data_uri(block.url)) is not None:
        guessed: str | None = uri.media_type
    else:
        guessed = mimetypes.guess_type(block.url.partition("?")[0].partition("#")[0])[0]
    kind = "image" if isinstance(block, Image) else block.media
    return guessed or ("application/octet-stream" if kind == "file" else f"{kind}/*")
