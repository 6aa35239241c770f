"""From one worker process to another of the same service, past the kernel's choice of who gets a connection.

Each worker has a slot with an inbox, a pair of datagram sockets that the master has made before it forks: nothing has a
name in a file system that could be too long, left behind or opened by others. A worker that replaces another takes over
its slot and what is left in its inbox.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ANSWER_S = 1.0  # for an answer; a worker's loop is never held for so long, and the client's patience is not ours
MAX_LETTER_BYTES = 4096  # the playground's have 200 to 300
LETTERS_AT_ONCE = 64  # read in a turn of the loop; the kernel keeps some tens for a slow reader
_HEAD = struct.Struct("!cHI")  # what it is, the sender's slot, the question's number
_QUESTION, _ANSWER = b"?", b"!"


@dataclass(frozen=True, slots=True)
class Channel:
    """The way to one worker: everybody writes to `letterbox`, and only the worker reads its `inbox`."""

    inbox: socket.socket
    letterbox: socket.socket

    def close(self) -> None:
        """Give the descriptors of this process back."""
        self.inbox.close()
        self.letterbox.close()


def open_channels(workers: int) -> tuple[Channel, ...]:
    """A channel for each of so many slots, to be inherited by forks. Raises OSError when descriptors are used up."""
    channels = []
    for _ in range(workers):
        inbox, letterbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        inbox.settimeout(0)
        letterbox.settimeout(0)
        channels.append(Channel(inbox, letterbox))
    return tuple(channels)


class Siblings:
    """
    Asks other workers, and answers them.

    Args:
        slot: This worker's.
        channels: By slot; none where there is one process only.
        succeeds: Whether another worker had this slot before, and has ended.
    """

    def __init__(self, slot: int = 0, channels: Sequence[Channel] = (), *, succeeds: bool = False) -> None:
        self.slot = slot
        self.succeeds = succeeds
        self._channels = channels
        self._answer: Callable[[bytes], bytes] | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        # Not from 0: an answer to the worker that had this slot before must not pass for one to us.
        self._number = random.getrandbits(32)

    def listen(self, answer: Callable[[bytes], bytes]) -> None:
        """Have questions answered by *answer*, which neither waits nor raises, until `close`."""
        self._answer = answer
        if self._channels:
            asyncio.get_running_loop().add_reader(self._channels[self.slot].inbox, self._read)

    def close(self) -> None:
        """Answer no more."""
        if self._channels:
            asyncio.get_running_loop().remove_reader(self._channels[self.slot].inbox)

    async def ask(self, slot: int, question: bytes) -> bytes:
        """
        What the worker in *slot* answers to *question*.

        Raises:
            LookupError: There is no such slot.
            TimeoutError: It does not answer: it hangs, or has just died.
        """
        if not 0 <= slot < len(self._channels):
            raise LookupError("no such slot")
        self._number = number = (self._number + 1) & 0xFFFF_FFFF
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            async with asyncio.timeout(ANSWER_S):
                self._send(slot, _HEAD.pack(_QUESTION, self.slot, number) + question)
                return await answered
        finally:
            del self._waiting[number]

    def _send(self, slot: int, letter: bytes) -> None:
        try:
            self._channels[slot].letterbox.send(letter)
        except OSError:
            pass  # an inbox that is full is one that nobody reads: whoever asked notices by the silence

    def _read(self) -> None:
        inbox = self._channels[self.slot].inbox
        for _ in range(LETTERS_AT_ONCE):
            try:
                letter = inbox.recv(MAX_LETTER_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            kind, sender, number = _HEAD.unpack_from(letter)
            content = letter[_HEAD.size :]
            if kind == _ANSWER:
                waiting = self._waiting.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(content)
            elif self._answer is not None:
                self._send(sender, _HEAD.pack(_ANSWER, self.slot, number) + self._answer(content))
