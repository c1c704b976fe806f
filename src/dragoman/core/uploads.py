"""Uploaded objects: the form of their paths, and what their bytes show about them. Pure.

    agent-inputs/OWNER/THREAD/RUN/NAME.EXTENSION

The name of a user, a thread or a run that is not safe in a file name is replaced by its digest.
"""

import hashlib
import re

from dragoman.core.ids import UserId

BUCKET = "dragoman"
UPLOAD_SCHEME = "upload:"
"""Prefix of an uploaded object's path in the URL of a stored message."""
UPLOAD_ROOT = "agent-inputs"
UNASSIGNED = "-"
"""The folder of objects that belong to no thread or no run."""

_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
PATH_PATTERN = (
    rf"{UPLOAD_ROOT}/[a-z0-9_-]{{1,65}}/[a-z0-9_-]{{1,65}}/[a-z0-9_-]{{1,65}}/"
    r"[a-z0-9-]{1,64}\.(?:png|jpg|webp|gif|heic|avif)"
)
_PATH = re.compile(PATH_PATTERN)

EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/heic": "heic",
    "image/avif": "avif",
}
HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"})
AVIF_BRANDS = frozenset({b"avif", b"avis"})
MIME_TYPES = {extension: mime_type for mime_type, extension in EXTENSIONS.items()}


def folder_of(name: str) -> str:
    """The folder name of a user, a thread or a run. Different names have different folders."""
    return name if _SAFE_NAME.fullmatch(name) else f"_{hashlib.sha256(name.encode()).hexdigest()}"


def owner_folder(owner: UserId) -> str:
    """The folder of all objects of a user."""
    return f"{UPLOAD_ROOT}/{folder_of(owner)}"


def thread_folder(owner: UserId, thread: str | None) -> str:
    """The folder of the objects that a user uploaded for a thread, or for none."""
    return f"{owner_folder(owner)}/{UNASSIGNED if thread is None else folder_of(thread)}"


def path_for(owner: UserId, thread: str | None, run: str | None, name: str, mime_type: str) -> str:
    """The path of a new object."""
    below = UNASSIGNED if run is None else folder_of(run)
    return f"{thread_folder(owner, thread)}/{below}/{name}.{EXTENSIONS[mime_type]}"


def is_path_of(owner: UserId, path: str) -> bool:
    """Whether the path has the form that `path_for` returns and belongs to the user."""
    return _PATH.fullmatch(path) is not None and path.startswith(f"{owner_folder(owner)}/")


def mime_type_of(path: str) -> str:
    """The MIME type of an object, by its path."""
    return MIME_TYPES[path.rpartition(".")[2]]


def upload_type(url: str) -> str | None:
    """The MIME type of an uploaded object in a stored message; None if the URL is of another kind."""
    path = url.removeprefix(UPLOAD_SCHEME)
    return mime_type_of(path) if path != url and _PATH.fullmatch(path) else None


def sniff_image_type(content: bytes) -> str | None:
    """The MIME type of an image by its first bytes; None if it is not a supported one."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:8] == b"ftyp":
        brands = [content[8:12], *(content[at : at + 4] for at in range(16, int.from_bytes(content[:4]), 4))][:64]
        if not AVIF_BRANDS.isdisjoint(brands):
            return "image/avif"
        return "image/heic" if brands[0] in HEIC_BRANDS else None
    return None


def wav_data_size(content: bytes) -> int | None:
    """The number of bytes of sound in a WAV file; None if it is not a WAV file."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return None
    at = 12
    while at + 8 <= len(content):
        name, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "little")
        if name == b"data":
            return min(size, len(content) - at - 8)
        at += 8 + size + size % 2
    return 0
