"""A program: a GIF in base64 on standard input becomes its first frame as PNG, in base64, on standard output.

What it decodes comes from a stranger, so it has nothing to lose: no environment, no files, and bounds of its own set
before the first byte is read. It imports nothing of the gateway, so that it starts in 60 ms (measured), half of which
is Pillow. Its one argument is the most pixels that it may decode.
"""

from __future__ import annotations

import os
import resource
import sys
import warnings
from base64 import b64encode
from binascii import a2b_base64
from io import BytesIO

BAD_PICTURE = 3  # exit status: it is the picture's fault. An interpreter that fails exits with 1 or 2
# 64 million pixels of a GIF take a byte each, twice while they are drawn, beside 50 MB of interpreter and picture.
MEMORY_BYTES = 512 * 1024 * 1024
CPU_S = 10  # the largest picture takes 1.1 s (measured)
COMPRESS_LEVEL = 6  # zlib's own default, and PNG encoders' as well


def bound() -> None:
    """Take from this process what it does not need."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)  # streams come first


def first_frame(gif: bytes, max_pixels: int) -> bytes:
    """
    The first frame of *gif* as PNG.

    Raises:
        Exception: Whatever Pillow has to say of a picture that is none, or is larger than *max_pixels*.
    """
    from PIL import GifImagePlugin, Image, PngImagePlugin  # noqa: F401  # only after the bounds; they register

    Image.MAX_IMAGE_PIXELS = max_pixels
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    out = BytesIO()
    with Image.open(BytesIO(gif), formats=("GIF",)) as image:
        image.save(out, "PNG", compress_level=COMPRESS_LEVEL)
    return out.getvalue()


def run() -> int:
    """The exit status."""
    bound()
    try:
        png = first_frame(a2b_base64(sys.stdin.buffer.read()), int(sys.argv[1]))
    except ImportError:
        raise
    except Exception:
        return BAD_PICTURE
    sys.stdout.buffer.write(b64encode(png))
    return 0


if __name__ == "__main__":
    sys.exit(run())
