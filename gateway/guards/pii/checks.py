"""What a number has to be besides its shape: check digits, dates, codes of places."""

from __future__ import annotations

import re

# Codes of Indonesia's provinces in the numbering of its Ministry of Home Affairs, those of 2022 (92, 93, 95, 96) among
# them. Numbers are for life, so one that a split made out of date is still on cards.
PROVINCES = frozenset(
    str(code)
    for codes in ((11, 19), (21, 21), (31, 36), (51, 53), (61, 65), (71, 76), (81, 82), (91, 96))
    for code in range(codes[0], codes[1] + 1)
)
_REGENCIES = frozenset(  # `kabupaten` count from 01, and no province has had more than 38; `kota` count from 71
    f"{code:02}" for codes in ((1, 40), (71, 79)) for code in range(codes[0], codes[1] + 1)
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WOMAN = 40  # is added to the day of birth


def _days(more: int) -> frozenset[str]:
    """All days of a year, as they are written with *more* added to the day: `2902`."""
    return frozenset(
        f"{day + more:02}{month:02}" for month, last in enumerate(_MONTH_DAYS, 1) for day in range(1, last + 1)
    )


_DAYS_OF_ISSUE = _days(0)
_DAYS_OF_BIRTH = _days(0) | _days(_WOMAN)
_LEAP_DAYS = frozenset(("2902", f"{29 + _WOMAN}02"))

# Letters of the checksum by what is left of the weighted sum, and what is added to it, per first letter.
_NRIC_WEIGHTS = (2, 7, 6, 5, 4, 3, 2)
_NRIC_LETTERS = {
    "S": ("JZIHGFEDCBA", 0),
    "T": ("JZIHGFEDCBA", 4),
    "F": ("XWUTRQPNMLK", 0),
    "G": ("XWUTRQPNMLK", 4),
    "M": ("XWUTRQPNJLK", 3),
}

# Issuer's prefix and lengths, of what is paid with in Indonesia and Singapore.
_CARD = re.compile(
    r"4(?:[0-9]{15}|[0-9]{18})"  # Visa
    r"|(?:5[1-5]|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]+"  # Mastercard: 16, looked at below
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}"  # Diners Club
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12,15}"  # JCB
    r"|(?:6011|65[0-9]{2}|64[4-9][0-9])[0-9]{12,15}"  # Discover
    r"|62[0-9]{14,17}"  # UnionPay
    r"|(?:50|5[6-8]|63|67)[0-9]{14,17}"  # Maestro
)
_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")  # a digit doubled, and the two digits of that added

_IBAN_TABLE = (
    "AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BI:27 BR:29 BY:28 CH:21 CR:22 CY:28 CZ:24 DE:22 DJ:27 "
    "DK:18 DO:28 EE:20 EG:29 ES:24 FI:18 FK:18 FO:18 FR:27 GB:22 GE:22 GI:23 GL:18 GR:27 GT:28 HN:28 HR:21 HU:28 "
    "IE:22 IL:23 IQ:23 IS:26 IT:27 JO:30 KW:30 KZ:20 LB:28 LC:32 LI:21 LT:20 LU:20 LV:21 LY:25 MC:27 MD:24 ME:22 "
    "MK:19 MN:20 MR:27 MT:31 MU:30 NI:28 NL:18 NO:15 OM:23 PK:24 PL:28 PS:29 PT:25 QA:29 RO:24 RS:22 RU:33 SA:24 "
    "SC:31 SD:18 SE:24 SI:19 SK:24 SM:27 SO:23 ST:25 SV:28 TL:23 TN:24 TR:26 UA:29 VA:22 VG:24 XK:20 YE:30"
)
IBAN_CHARS = {pair[:2]: int(pair[3:]) for pair in _IBAN_TABLE.split()}
"""How long an account number of a country is, by SWIFT's registry."""


def has_luhn(digits: str) -> bool:
    """Whether the last of *digits* is the check digit of the others by Luhn's rule."""
    data = digits.encode()
    total = sum(data[-1::-2]) + sum(data[-2::-2].translate(_DOUBLED)) - 48 * len(data)
    return total % 10 == 0


def is_card(digits: str) -> bool:
    """Whether they are a payment card's: prefix and length of an issuer, and the check digit."""
    if _CARD.fullmatch(digits) is None or not has_luhn(digits):
        return False
    return len(digits) == 16 or not (digits[0] == "2" or "51" <= digits[:2] <= "55")


def is_citizen(digits: str) -> bool:
    """Whether 16 digits may be a NIK: an area's code, a day of birth with a woman's raised by 40, and a serial."""
    return digits[6:10] in _DAYS_OF_BIRTH and _has_area(digits)


def is_family(digits: str) -> bool:
    """Whether 16 digits may be a family card's: an area's code, the day of its first issue, and a serial."""
    return digits[6:10] in _DAYS_OF_ISSUE and _has_area(digits)


def is_taxpayer(digits: str) -> bool:
    """
    Whether they may be an NPWP's.

    Of the 15 digits the ninth checks those in front of it, and a tax office stands behind it; 16 digits are a citizen's
    own number, or the 15 behind a zero.
    """
    if len(digits) == 16:
        return is_citizen(digits) if digits[0] != "0" else is_taxpayer(digits[1:])
    return digits[9:12] != "000" and digits[2:8] != "000000" and has_luhn(digits[:9])


def is_nric(letter: str, digits: str, check: str) -> bool:
    """Whether *check* is the letter that Singapore's NRICs and FINs have behind *letter* and seven *digits*."""
    letters, more = _NRIC_LETTERS[letter]
    return letters[(sum(map(int.__mul__, _NRIC_WEIGHTS, map(int, digits))) + more) % 11] == check


def is_iban(chars: str) -> bool:
    """Whether it is an account's: a country of the registry, its length, and the two check digits are right."""
    if IBAN_CHARS.get(chars[:2]) != len(chars):
        return False
    return int("".join([str(int(char, 36)) for char in chars[4:] + chars[:4]])) % 97 == 1


def _has_area(digits: str) -> bool:
    """Whether the area, the year and the serial of 16 digits may be."""
    if digits[:2] not in PROVINCES or digits[2:4] not in _REGENCIES or digits[4:6] == "00" or digits[12:] == "0000":
        return False
    # The century is not told, so that 29 February is one of any year that four divides.
    return digits[6:10] not in _LEAP_DAYS or int(digits[10:12]) % 4 == 0
