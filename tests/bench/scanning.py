"""
What the engines that look for pieces of a text take: `python -m tests.bench.scanning`.

Microseconds of CPU for a text of 1 KB, the best of many rounds, and milliseconds for a hostile one of 1 MB, the best
of three.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from gateway.core.guarding import Engine, Text, never_late
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.pii import PiiEngine

KB, MB = 1024, 1_000_000
ROUNDS, LOOPS = 30, 100
_PROSE = (
    "Selamat pagi, mohon bantu saya menulis surat kepada pelanggan tentang keterlambatan pengiriman barang. Please "
    "keep the tone polite and mention that the order from 12 March is late by 3 days, price Rp 1.250.000. "
)


def kilobyte(end: str) -> str:
    """A text of 1 KB that ends in *end*."""
    return (_PROSE * 6)[: KB - len(end)] + end


CLEAN: Mapping[str, str] = {
    "prose": kilobyte(""),
    "with marks beyond ASCII": kilobyte("“ok” – naïve"),
    "with years between dashes": kilobyte("1990–2000"),
    "with a date": kilobyte(" 2026-01-31 "),
    "with an identity number": kilobyte(" NIK 3171012301900001"),
    "with a password": kilobyte(" password: Kucing123"),
}
HOSTILE = ("1", "1-", "4111 ", "0812-1-", "1234567890\n", "１", "@", "a@b.co ", "1.1.1.1 ", "GB82 ", "password=Abc123 ")


def best_us(engine: Engine, text: Text, rounds: int, loops: int) -> float:
    """The fastest of *rounds*, for one of *loops* scans."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(loops):
            engine.scan(text, never_late)
        took.append(time.process_time() - began)
    return min(took) / loops * 1e6


def measure(rounds: int = ROUNDS, loops: int = LOOPS, hostile_chars: int = MB) -> dict[str, list[float]]:
    """By text, microseconds for each engine."""
    engines = (PiiEngine(), CredentialsEngine())
    took = {name: [best_us(engine, Text(text), rounds, loops) for engine in engines] for name, text in CLEAN.items()}
    for unit in HOSTILE:
        text = Text(unit * (hostile_chars // len(unit)))
        took[repr(unit)] = [best_us(engine, text, min(rounds, 3), 1) for engine in engines]
    return took


def main() -> None:
    """Measure, and print."""
    print(f"{'':28}{'pii':>12}{'credentials':>14}")
    for name, (pii_us, credentials_us) in measure().items():
        unit, by = ("us", 1) if name in CLEAN else ("ms", 1000)
        print(f"{name:28}{pii_us / by:>9.1f} {unit}{credentials_us / by:>11.1f} {unit}", flush=True)


if __name__ == "__main__":
    main()
