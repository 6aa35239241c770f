"""What the guard `pii` looks for, and what makes it sure; `docs/guardrails-pii.md` has the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """
    A kind of personal data.

    Attributes:
        what: What it is.
        proof: What is looked at besides its shape.
        needs_word: Whether it is nothing without a word for it in front.
    """

    what: str
    proof: str
    needs_word: bool = False


KINDS: Mapping[str, Kind] = {
    "nik": Kind("Indonesian citizen's number, 16 digits", "codes of province and regency, day of birth, serial"),
    "kk": Kind(
        "Indonesian family card, 16 digits", "codes of province and regency, day of issue, serial", needs_word=True
    ),
    "npwp": Kind("Indonesian taxpayer's number, 15 or 16 digits", "check digit, tax office; its grouping or a word"),
    "passport": Kind("passport: one or two letters, six or seven digits", "length", needs_word=True),
    "bpjs": Kind("BPJS Kesehatan (13 digits) or Ketenagakerjaan (11)", "length, beginning", needs_word=True),
    "plate": Kind("Indonesian vehicle plate", "the region's code, no leading zero", needs_word=True),
    "bank_account": Kind("bank account, 7 to 16 digits", "the length at the bank that is named", needs_word=True),
    "phone": Kind("phone in Indonesia or Singapore", "operator's prefix and length; others a sign, brackets or a word"),
    "nric": Kind("Singapore NRIC or FIN (S, T, F, G, M)", "check letter"),
    "email": Kind("e-mail address", "lengths of its parts, a domain that is no file's name"),
    "card": Kind("payment card, 14 to 19 digits", "issuer's prefix and length, check digit"),
    "iban": Kind("IBAN", "the country's length, two check digits"),
    "ip": Kind("IPv4 or IPv6 address", "octets, a public network that is nobody's service or example"),
}
