"""Uploaded objects. `Attachments.delete_for_session` deletes those of a session."""

from dragoman.core.ids import UserId
from dragoman.core.uploads import owner_folder, path_for, thread_folder
from dragoman.ports.blobs import BlobStore
from dragoman.ports.environment import Ids


class Uploads:
    """Objects that users upload before they refer to them in a message. See `core.uploads` for their paths."""

    def __init__(self, blobs: BlobStore, ids: Ids) -> None:
        self._blobs = blobs
        self._ids = ids

    async def put(self, owner: UserId, thread: str | None, run: str | None, content: bytes, mime_type: str) -> str:
        """Store an object. Returns its path. Raises StoreUnavailable."""
        path = path_for(owner, thread, run, self._ids.new(), mime_type)
        await self._blobs.put(path, content)
        return path

    async def delete_for_thread(self, owner: UserId, thread: str) -> None:
        """Delete what a user uploaded for a thread that was never created."""
        await self._blobs.delete(thread_folder(owner, thread))

    async def get(self, path: str) -> bytes | None:
        """The content of the object at a path; None if there is none."""
        return await self._blobs.get(path)

    async def paths_of_owner(self, owner: UserId) -> list[str]:
        """The paths of a user's objects, newest first: their names sort by time."""
        paths = await self._blobs.names(owner_folder(owner))
        return sorted(paths, key=lambda path: path.rpartition("/")[2], reverse=True)

    async def remove(self, path: str) -> None:
        """Delete the object at a path. Messages that refer to it then show nothing."""
        await self._blobs.delete(path)
