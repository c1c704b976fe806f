"""Uploaded objects: what their paths say, and which bytes are what they are declared to be. Pure.

    agent-inputs/OWNER/THREAD/RUN/NAME.EXTENSION

A user, a thread or a run whose name is no plain word stands there as its digest, so that every path can be a file's.
"""

import hashlib
import re

from dragoman.core.ids import UserId

BUCKET = "dragoman"
UPLOAD_SCHEME = "upload:"
"""What stands before the path where a stored message holds an object in place of a URL."""
UPLOAD_ROOT = "agent-inputs"
UNASSIGNED = "-"
"""The folder of what belongs to no thread, or to no run."""

_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
PATH_PATTERN = (
    rf"{UPLOAD_ROOT}/[a-z0-9_-]{{1,65}}/[a-z0-9_-]{{1,65}}/[a-z0-9_-]{{1,65}}/[a-z0-9-]{{1,64}}\.(?:png|jpg|webp|gif)"
)
_PATH = re.compile(PATH_PATTERN)

EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}
MIME_TYPES = {extension: mime_type for mime_type, extension in EXTENSIONS.items()}


def folder_of(name: str) -> str:
    """The folder's name that stands for a user, a thread or a run. Different names have different folders."""
    return name if _SAFE_NAME.fullmatch(name) else f"_{hashlib.sha256(name.encode()).hexdigest()}"


def owner_folder(owner: UserId) -> str:
    """Where all objects of a user lie."""
    return f"{UPLOAD_ROOT}/{folder_of(owner)}"


def thread_folder(owner: UserId, thread: str | None) -> str:
    """Where the objects lie that a user uploaded for a thread, or for none."""
    return f"{owner_folder(owner)}/{UNASSIGNED if thread is None else folder_of(thread)}"


def path_for(owner: UserId, thread: str | None, run: str | None, name: str, mime_type: str) -> str:
    """The path of a new object."""
    below = UNASSIGNED if run is None else folder_of(run)
    return f"{thread_folder(owner, thread)}/{below}/{name}.{EXTENSIONS[mime_type]}"


def is_path_of(owner: UserId, path: str) -> bool:
    """Whether that is a path as we make them, of an object of that user's."""
    return _PATH.fullmatch(path) is not None and path.startswith(f"{owner_folder(owner)}/")


def mime_type_of(path: str) -> str:
    """What an object is, by its path."""
    return MIME_TYPES[path.rpartition(".")[2]]


def upload_type(url: str) -> str | None:
    """What an object is that stands in a stored message; None when the URL is of another kind."""
    path = url.removeprefix(UPLOAD_SCHEME)
    return mime_type_of(path) if path != url and _PATH.fullmatch(path) else None


def sniff_image_type(content: bytes) -> str | None:
    """What the first bytes say that a picture is; None when it is none that we take."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return None
