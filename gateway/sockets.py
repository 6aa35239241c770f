"""What both sides do to a socket."""

from __future__ import annotations

import asyncio
import socket
import struct

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST and forgets what was not sent


def set_reset_on_close(transport: asyncio.Transport) -> None:
    """Have the socket under *transport* closed by a reset; nothing happens where it is closed already."""
    sock = transport.get_extra_info("socket")
    try:
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    except (OSError, ValueError):
        pass
