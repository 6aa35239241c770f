"""Characters that no name or id is kept with: they steer what shows them, or cannot be seen at all."""

from __future__ import annotations

from typing import Final

# For a character class of `re`. Unicode 16.0, categories Cc, Cs, Zl, Zp and of Cf what orders text (UAX 9) or shows
# nothing. Of Cf are kept: U+200C and U+200D, without which Persian, Indic scripts and families of emoji fall apart, and
# the signs that are seen, such as U+0600 to U+0605.
UNSHOWN: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\ud800-\udfff"  # surrogates have no UTF-8 form: Postgres refuses them
    "\xad\u180e\u200b\ufeff"  # soft hyphen, Mongolian vowel separator, zero-width space, byte order mark
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the order of text: `\u202e` turns round what follows it
    "\u2028\u2029"  # separators of lines and paragraphs cut log lines
    "\u2060-\u2065\u206a-\u206f\ufff9-\ufffb"  # word joiner, invisible operators, deprecated, annotations
    "\U000e0000-\U000e007f"  # tags: ASCII that nobody sees
)
