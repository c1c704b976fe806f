"""The event loop's time, shared fairly between users that have more to do than to wait for."""

import asyncio
from collections import deque

from dragoman.core.ids import UserId


class FairTurns:
    """Lets one busy task of each user continue in each iteration of the event loop, in the order of their calls."""

    def __init__(self) -> None:
        self._waiting: dict[UserId, deque[asyncio.Future[None]]] = {}
        """The users with a task that continues in the next iteration, each with the tasks after it."""

    async def take(self, user: UserId) -> None:
        """Yield to all other tasks, until it is the caller's turn."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(user)
        if waiting is None:
            self._waiting[user] = deque()
            loop.call_soon(self._wake_next, user)
            await asyncio.sleep(0)
        else:
            turn = loop.create_future()
            waiting.append(turn)
            await turn

    def _wake_next(self, user: UserId) -> None:
        waiting = self._waiting[user]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._wake_next, user)
                return
        del self._waiting[user]
