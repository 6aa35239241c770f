"""What the words in front of a number say that it is: some shapes are nothing without them."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

from ahocorasick_rs import AhoCorasick, MatchKind

from gateway.guards.blanking import FOUND
from gateway.guards.disguise import lowered

REACH = 48
"""How many characters in front of a number its word may end."""
_NEXT = 12  # so near behind a number of a kind, another one is of the same: `1234567890 dan 0987654321`
_LONG = 6  # words from here on may be the end of a longer one: `nomorRekening`, `no_paspor`

# Banks by how many digits their accounts have, in Indonesia and Singapore.
_BANKS = {
    "bca": (10,),
    "bni": (10,),
    "bri": (15,),
    "bsi": (10,),
    "btn": (16,),
    "mandiri": (13,),
    "cimb": (12, 13, 14),
    "cimb niaga": (12, 13, 14),
    "danamon": (10, 12, 13),
    "permata": (9, 10, 16),
    "ocbc": (7, 9, 10, 12),
    "jago": (12,),
    "seabank": (12,),
    "dbs": (9, 10),
    "posb": (9, 10),
    "uob": (10,),
}
_WORDS = {
    "nik": "nik|n.i.k|ktp|e-ktp|nomor induk kependudukan|no induk kependudukan|no. induk kependudukan|identity card"
    "|identity number|national id|id card",
    "kk": "kk|k.k|kartu keluarga|kartukeluarga|nomor keluarga|family card|family register",
    "npwp": "npwp|n.p.w.p|nomor pokok wajib pajak|wajib pajak|tax id|tax number|tin|taxpayer",
    "passport": "passport|paspor|pasport",
    "bpjs": "bpjs|jkn|kis|kartu indonesia sehat|bpjstk|kpj|jamsostek|ketenagakerjaan|kartu peserta|nomor peserta",
    "plate": "plat|plat nomor|nopol|no pol|no. pol|no.pol|nomor polisi|no polisi|mobil|motor|kendaraan|truk|stnk|bpkb"
    "|plate|license|licence|vehicle|number plate|car|motorcycle|truck",
    "bank_account": "rekening|norek|no rek|no. rek|no.rek|rek|a/c|acc no|acct|account number|account no|bank account"
    "|account|bank|transfer ke|transfer to|tf ke",
    "phone": "telepon|telpon|telp|tlp|tel|hp|no hp|handphone|ponsel|nomor kontak|kontak|hubungi|wa|whatsapp|phone"
    "|mobile|cell|call|contact|sms|fax|dial|handphone|telegram|signal|gopay|ovo|dana|shopeepay",
    "card": "kartu kredit|kartu debit|credit card|debit card|card|cc|visa|mastercard|pan",
    "ip": "ip|ip address|alamat ip|ipv4|ipv6|client ip|remote addr",
    # A number behind one of these is what it says.
    "other": "order|pesanan|order id|invoice|inv|faktur|resi|awb|tracking|shipment|isbn|issn|sku|imei|barcode|ean|upc"
    "|tiket|ticket|transaksi|transaction|trx|txn|ref|referensi|reference|timestamp|epoch|unix|hash|checksum|build"
    "|commit|rp|idr|usd|sgd|harga|price|total|version|versi|ver|v|seed|serial|serial number|batch|lot|issue|uuid"
    "|oid|objectidentifier|object identifier|section|trace|span|offset|bytes|size|page|halaman|pasal|pixel|duration"
    "|latency",
}


class Topic(NamedTuple):
    """
    What a number is said to be.

    Attributes:
        lengths: How many digits an account of the bank that is named has; empty where none is.
    """

    name: str = ""
    lengths: tuple[int, ...] = ()


NO_TOPIC = Topic()


class Last(NamedTuple):
    """Where the last finding ends, and what words had said of it."""

    end: int = 0
    topic: Topic = NO_TOPIC


_TOPICS = {word: Topic(name) for name, words in _WORDS.items() for word in words.split("|")} | {
    bank: Topic("bank_account", lengths) for bank, lengths in _BANKS.items()
}
_NAMES = tuple(_TOPICS)
# One pass over the text, whatever it is made of.
_FIND = AhoCorasick(_NAMES, matchkind=MatchKind.LeftmostLongest)


class Context:
    """The words of one text, looked up when the first number asks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._topics: list[Topic] = []

    @cached_property
    def _ends(self) -> list[int]:
        lower = lowered(self._text)
        ends = []
        for index, start, end in _FIND.find_matches_as_indexes(lower):
            word = _NAMES[index]
            if _begins_word(lower, start, word) and _ends_word(lower, end):
                ends.append(end)
                self._topics.append(_TOPICS[word])
        return ends

    def before(self, text: str, start: int, last: Last) -> Topic:
        """
        What the words say of the number that begins at *start*.

        Words in front of something that was found are said of that. They hold for a number right behind it, too.

        Args:
            text: With `FOUND` for every character of what others found.
            last: What was found in front by who asks.
        """
        if not self._ends:
            return NO_TOPIC
        floor = max(last.end, text.rfind(FOUND, max(start - REACH, last.end), start) + 1)
        at = bisect_right(self._ends, start) - 1
        if at >= 0 and self._ends[at] > floor and start - self._ends[at] <= REACH:
            return self._topics[at]
        return last.topic if floor == last.end and start - floor <= _NEXT else NO_TOPIC

    def is_word(self, end: int) -> bool:
        """Whether a word ends right at *end*: `NIK3171...` is a number all the same."""
        at = bisect_right(self._ends, end) - 1
        return at >= 0 and self._ends[at] == end


def _begins_word(lower: str, start: int, word: str) -> bool:
    return len(word) >= _LONG or not start or not lower[start - 1].isalnum()


def _ends_word(lower: str, end: int) -> bool:
    # `-nya` is Indonesian's article, `-s` English's plural; digits may follow at once.
    return (
        not lower[end : end + 1].isalpha()
        or (lower.startswith("nya", end) and not lower[end + 3 : end + 4].isalpha())
        or (lower.startswith("s", end) and not lower[end + 1 : end + 2].isalpha())
    )
