"""The media types of images and files. Pure."""

import mimetypes

from dragoman.core.content import File, Image


def media_type_of(block: Image | File) -> str:
    """The media type of a file: as declared, that of its `data:` URI, or a guess by the ending of its path."""
    if isinstance(block, File) and block.media_type:
        return block.media_type
    head, comma, _ = block.url.partition(",")
    declared = head.removeprefix("data:").partition(";")[0]
    if block.url.startswith("data:") and comma and declared:
        return declared
    path = block.url.partition("?")[0].partition("#")[0]
    guessed = None if block.url.startswith("data:") else mimetypes.guess_type(path)[0]
    kind = "image" if isinstance(block, Image) else block.media
    return guessed or ("application/octet-stream" if kind == "file" else f"{kind}/*")
