"""Letters of other alphabets that look like one of ours in most typefaces, in lower case; a choice of ours."""

from __future__ import annotations

LOOKALIKES = {
    "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ё": "e", "ғ": "f", "ɡ": "g", "һ": "h", "н": "h", "і": "i",
    "ї": "i", "ј": "j", "к": "k", "ӏ": "l", "м": "m", "п": "n", "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s",
    "т": "t", "у": "y", "ѵ": "v", "ԝ": "w", "х": "x", "ү": "y", "ь": "b", "α": "a", "β": "b", "ε": "e", "η": "n",
    "ι": "i", "κ": "k", "ν": "v", "ο": "o", "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x", "γ": "y", "ω": "w",
    "ϳ": "j", "օ": "o", "ս": "u", "հ": "h", "ո": "n", "ց": "g", "ı": "i", "ȷ": "j", "ɑ": "a", "ɩ": "i",
    "ʟ": "l", "ɪ": "i", "ɴ": "n", "ʀ": "r", "ᴀ": "a", "ʙ": "b", "ᴄ": "c", "ᴅ": "d", "ᴇ": "e", "ꜰ": "f", "ɢ": "g",
    "ʜ": "h", "ᴊ": "j", "ᴋ": "k", "ᴍ": "m", "ᴏ": "o", "ᴘ": "p", "ꜱ": "s", "ᴛ": "t", "ᴜ": "u", "ᴠ": "v", "ᴡ": "w",
    "ʏ": "y", "ᴢ": "z", "ø": "o", "đ": "d", "ł": "l", "ħ": "h", "Ꭺ": "a", "Ꭼ": "e", "Ꮖ": "i", "Ꮲ": "p", "Ꭱ": "r",
}  # fmt: skip
BOXED = {base + at: chr(97 + at) for base in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6) for at in range(26)}
"""Letters in boxes and circles, by their code points, that Unicode does not call forms of those in them."""
