"""Uploaded objects: stored before their path is told, and read back. See `Attachments.forget` for their end."""

from dragoman.core.ids import UserId
from dragoman.core.uploads import owner_folder, path_for, thread_folder
from dragoman.ports.blobs import BlobStore
from dragoman.ports.environment import Ids


class Uploads:
    """The objects that users bring before they speak of them. See `core.uploads` for their paths."""

    def __init__(self, blobs: BlobStore, ids: Ids) -> None:
        self._blobs = blobs
        self._ids = ids

    async def put(self, owner: UserId, thread: str | None, run: str | None, content: bytes, mime_type: str) -> str:
        """Store an object; its path. Raises StoreUnavailable."""
        path = path_for(owner, thread, run, self._ids.new(), mime_type)
        await self._blobs.put(path, content)
        return path

    async def delete_for_thread(self, owner: UserId, thread: str) -> None:
        """Remove what a user uploaded for a thread that never was."""
        await self._blobs.delete(thread_folder(owner, thread))

    async def get(self, path: str) -> bytes | None:
        """The object at a path that `core.uploads` made."""
        return await self._blobs.get(path)

    async def paths_of_owner(self, owner: UserId) -> list[str]:
        """The paths of a user's objects, the newest first: their names grow with time."""
        paths = await self._blobs.names(owner_folder(owner))
        return sorted(paths, key=lambda path: path.rpartition("/")[2], reverse=True)

    async def remove(self, path: str) -> None:
        """Remove the object at a path that `core.uploads` made. Messages that show it then show nothing."""
        await self._blobs.delete(path)
