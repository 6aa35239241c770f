"""What a policy may say of calls as such: which models, where they are computed, and how long they may be."""



from __future__ import annotations

from dataclasses import dataclass

from gateway.core.catalog import ModelClass
from gateway.core.guarding import CallTerms
from gateway.settings import checks
from gateway.settings.fields import setting

_TOKENS = (1, 100_000_000)  # as a model's `max_output_tokens`
_CHARS = (1, 1_000_000_000)  # no body is that long


@dataclass(frozen=True, slots=True)
class CallsEntry:
    """What calls may ask for; what is left out is not limited."""

    models: tuple[str, ...] | None = setting(
        "Models that may be called, with `*` at the end of one for any rest of a name.", None, check=checks.models
    )
    classes: tuple[ModelClass, ...] | None = setting("Model classes that may be called.", None, check=checks.some)
    regions: tuple[str, ...] | None = setting(
        "Regions of providers that calls may be computed in, such as `ID`. No other is asked, whatever fails.",
        None,
        check=checks.regions,
    )
    max_tokens: int | None = setting(
        "The most tokens that a call may ask an answer to have; one that does not say is sent with it.",
        None,
        bounds=_TOKENS,
    )
    max_prompt_chars: int | None = setting(
        "The most characters that all texts of a call may have together: instructions, messages, results and "
        "definitions of tools, and files that are texts.",
        None,
        bounds=_CHARS,
    )
    log_bodies: bool | None = setting(
        "With `false` no request and no answer is kept, whatever the key says; `true` changes nothing.", None
    )


def terms_of(entry: CallsEntry | None) -> CallTerms:
    """What *entry* says of calls."""
    if entry is None:
        return CallTerms()
    return CallTerms(
        (entry.models,) if entry.models is not None else (),
        classes=frozenset(entry.classes) if entry.classes is not None else None,
        regions=frozenset(entry.regions) if entry.regions is not None else None,
        max_tokens=entry.max_tokens,
        max_prompt_chars=entry.max_prompt_chars,
        log_bodies=entry.log_bodies,
    )
