"""Attachments: large contents of messages, which are stored outside the log and restored when read.

An image as a `data:` URI can have megabytes, and in the log it would be read with every page of the history. Contents
are stored before the message that has them, and deleted with its session.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
import structlog

from dragoman.core.blob_ref import BlobRef, blob_ref_for, parse_blob_ref
from dragoman.core.content import File, Image, Message, UserMessage
from dragoman.core.events import Event, LoggedEvent, MessageAdded, RunQueued, RunStarted
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Answer, Choice, Decision, Result, UserInput
from dragoman.core.uploads import UPLOAD_SCHEME as UPLOAD
from dragoman.core.uploads import mime_type_of, thread_folder
from dragoman.ports.blobs import BlobStore

ATTACHMENT_THRESHOLD_CHARS = 32 * 1024
"""A `data:` URI with more characters is stored outside the log."""

HASHED_ON_LOOP_BYTES = 256 * 1024
"""Content up to this size is verified on the event loop, in less than a millisecond; larger content on a thread."""

log = structlog.get_logger(__name__)

HasContent = TypeVar("HasContent", bound=Message | UserInput | Result)


class Attachments:
    """The attachments of all sessions. Equal contents of a session are stored once."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def has_large_content(self, *holders: UserInput | Answer) -> bool:
        """Whether any of these has content to store outside the log."""
        return any(not isinstance(each, Choice | Decision) and _is_large(each) for each in holders)

    async def put(self, session_id: SessionId, holders: Sequence[HasContent]) -> tuple[HasContent, ...]:
        """Store large contents. Returns the messages or inputs with references to them."""
        return tuple([await self._put_one(session_id, each) for each in holders])

    async def put_seeds(self, session_id: SessionId, created: Sequence[Event]) -> Sequence[Event]:
        """Store large contents of a new session's seeds. Returns the events with references to them."""
        return [
            MessageAdded(message=await self._put_one(session_id, event.message))
            if isinstance(event, MessageAdded)
            else event
            for event in created
        ]

    async def put_answers(self, session_id: SessionId, answers: Sequence[Answer]) -> tuple[Answer, ...]:
        """Store large contents of answers. Returns the answers with references to them."""
        return tuple([await self._put_one(session_id, each) if isinstance(each, Result) else each for each in answers])

    async def restore(
        self, session_id: SessionId, messages: Sequence[HasContent], *, with_uploads: bool = True
    ) -> Sequence[HasContent]:
        """The messages as they were sent; with `with_uploads`, uploaded images as `data:` URIs."""
        if not any(_has_reference(message) for message in messages):
            return messages
        return [await self._restore_one(session_id, message, with_uploads) for message in messages]

    async def restore_event(self, session_id: SessionId, logged: LoggedEvent) -> LoggedEvent:
        """An event with its messages as they were sent."""
        event: MessageAdded | RunQueued | RunStarted
        match logged.event:
            case MessageAdded(message=message):
                (restored,) = await self.restore(session_id, (message,))
                if restored is message:
                    return logged
                event = MessageAdded(message=restored)
            case RunQueued(inputs=inputs) | RunStarted(inputs=inputs) as begun:
                messages = await self.restore(session_id, inputs)
                if messages is inputs:
                    return logged
                event = msgspec.structs.replace(begun, inputs=tuple(messages))
            case _:
                return logged
        return msgspec.structs.replace(logged, event=event)

    async def delete_for_session(self, session_id: SessionId, owner: UserId) -> None:
        """Delete all attachments of a session, and what its owner uploaded for it."""
        await self._blobs.delete(f"sessions/{session_id}")
        await self._blobs.delete(thread_folder(owner, session_id))

    async def _put_one(self, session_id: SessionId, holder: HasContent) -> HasContent:
        if not _is_large(holder):
            return holder
        blocks: list[object] = []
        for block in holder.content:
            if isinstance(block, Image | File) and _is_large_block(block):
                ref = blob_ref_for(block.url)
                await self._blobs.put(f"sessions/{session_id}/{ref.digest}", block.url.encode())
                blocks.append(msgspec.structs.replace(block, url=str(ref)))
            else:
                blocks.append(block)
        return msgspec.structs.replace(holder, content=tuple(blocks))

    async def _restore_one(self, session_id: SessionId, holder: HasContent, with_uploads: bool) -> HasContent:
        if not _has_reference(holder):
            return holder
        blocks: list[object] = []
        takes_uploads = with_uploads and isinstance(holder, UserMessage)  # in a tool's result such a URL means nothing
        for block in holder.content:
            if isinstance(block, Image | File) and (ref := parse_blob_ref(block.url)):
                blocks.append(msgspec.structs.replace(block, url=await self._content(session_id, ref)))
            elif isinstance(block, Image) and takes_uploads and block.url.startswith(UPLOAD):
                blocks.append(Image(await self._data_uri(block.url.removeprefix(UPLOAD))))
            else:
                blocks.append(block)
        return msgspec.structs.replace(holder, content=tuple(blocks))

    async def _content(self, session_id: SessionId, ref: BlobRef) -> str:
        """An attachment as a `data:` URI; empty if it is missing, or was altered on the disk."""
        content = await self._blobs.get(f"sessions/{session_id}/{ref.digest}")
        if content is None:
            return ""
        if len(content) > HASHED_ON_LOOP_BYTES:
            digest = await asyncio.to_thread(_digest_of, content)
        else:
            digest = _digest_of(content)
        if digest != ref.digest:
            log.error("attachment was altered", session_id=session_id, attachment=ref.digest, hint="restore a backup")
            return ""
        return content.decode()

    async def _data_uri(self, path: str) -> str:
        """An uploaded image as a `data:` URI; empty if it was removed with its thread."""
        content = await self._blobs.get(path)
        return "" if content is None else f"data:{mime_type_of(path)};base64,{b64encode(content).decode()}"


def _digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def _is_large(holder: Message | UserInput | Result) -> bool:
    content: str | Iterable[object] = holder.content
    return not isinstance(content, str) and any(
        isinstance(block, Image | File) and _is_large_block(block) for block in content
    )


def _is_large_block(block: Image | File) -> bool:
    return len(block.url) > ATTACHMENT_THRESHOLD_CHARS and block.url.startswith("data:")


def _has_reference(holder: Message | UserInput | Result) -> bool:
    content: str | Iterable[object] = holder.content
    return not isinstance(content, str) and any(
        isinstance(block, Image | File) and (parse_blob_ref(block.url) or block.url.startswith(UPLOAD))
        for block in content
    )
