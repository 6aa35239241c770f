"""JSON as Python values, in time that its length decides."""

from __future__ import annotations

import msgspec

# A number with a fraction or an exponent stays as it was spelled, the `Raw` of its literal: nobody here needs its
# value, and it is written again as it came. Converting it is where the decoder has a slow path: 10 us for `1e300`, so
# that 600 KB of them held the loop for over a second.
decode_values = msgspec.json.Decoder(float_hook=msgspec.Raw).decode
"""The payload as dicts, lists, strings, integers, booleans, None and `Raw`. Raises DecodeError or RecursionError."""

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The members of an object, their values untouched and unchecked. Raises DecodeError."""
