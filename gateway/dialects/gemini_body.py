"""A prompt as the body of Gemini's `generateContent`, by Google's reference of that method, v1beta."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.cache_marks import has_cache_marks
from gateway.dialects.gemini_body_schema import unenforced
from gateway.dialects.gemini_body_thinking import write_thinking
from gateway.dialects.gemini_body_tools import write_tools
from gateway.dialects.gemini_body_turns import write_turns
from gateway.dialects.neutral import Notes, Prompt, Target
from gateway.dialects.stops import kept_stops
from gateway.dialects.validate import refuse, refuse_members
from gateway.wire.values import decode_values

_MAX_STOP = 5  # by the reference, `stopSequences`
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "seed": "seed",
}
_SEEDS = range(-(2**31), 2**31)  # an int32
_JSON = "application/json"
_MODALITIES = {"text": "TEXT", "image": "IMAGE"}
# Members of the method itself, which clients may send along by either spelling.
_OWN = {"safetySettings": "safetySettings", "safety_settings": "safetySettings"}
_LIKELIHOODS = {"logprobs": "responseLogprobs", "top_logprobs": "logprobs"}
# What an answer without it would be wrong about. Anything else that nobody here knows is dropped, and noted.
_REFUSED = {
    # It would be the account's, and so anybody's who has a key here.
    "cachedContent": "Content cached at the provider cannot be used here.",
    "cached_content": "Content cached at the provider cannot be used here.",
    "audio": "Audio cannot be had from this model here.",
}


def write_body(prompt: Prompt, target: Target, notes: Notes) -> bytes:
    """
    *prompt* as a request to *target*, whose name and wish for a stream are in the path.

    Raises:
        GatewayError: 400 naming the client's place of what must not be ignored and cannot be said.
    """
    notes.begin(prompt)
    refuse_members(prompt.others, _REFUSED)
    config = _limits(prompt, target, notes) | _sampling(prompt, target, notes)
    config |= _form(prompt, notes) | write_thinking(prompt, target.traits, notes)
    others = _others(prompt, config, notes)
    talk = write_turns(prompt, target.traits, notes)
    body: dict[str, Any] = {"contents": talk.contents}
    if talk.system:
        body["systemInstruction"] = {"parts": [{"text": text.text} for text in talk.system]}
    body |= write_tools(prompt, notes)
    if config:
        body["generationConfig"] = config
    if prompt.user is not None:
        notes.drop(prompt.names.get("user", "user"))
    if has_cache_marks(prompt):
        notes.drop("cache_control")
    return msgspec.json.encode(body | others)


def _limits(prompt: Prompt, target: Target, notes: Notes) -> dict[str, Any]:
    """How long the answer may be, thinking included, and what ends it."""
    config: dict[str, Any] = {}
    name, limit = prompt.names.get("max_tokens", "max_tokens"), target.max_output_tokens
    if prompt.max_tokens is not None:
        config["maxOutputTokens"] = min(prompt.max_tokens, limit or prompt.max_tokens)
        if config["maxOutputTokens"] < prompt.max_tokens:
            notes.translate(name)
    if stop := kept_stops(prompt, _MAX_STOP, notes):
        config["stopSequences"] = stop
        notes.translate(prompt.names.get("stop", "stop"))
    if prompt.n > 1:
        config["candidateCount"] = prompt.n
        notes.translate(prompt.names.get("n", "n"))
    return config


def _sampling(prompt: Prompt, target: Target, notes: Notes) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name, raw in prompt.sampling.items():
        member = _SAMPLING.get(name)
        if member is None or name in target.traits.lacks or (name == "seed" and not _is_seed(raw)):
            notes.drop(prompt.names.get(name, name))
        else:
            config[member] = raw
    return config


def _is_seed(raw: Raw) -> bool:
    seed = decode_values(raw)
    return isinstance(seed, int) and seed in _SEEDS


def _form(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """The form of the answer; of a schema, the keywords that the provider does not hold an answer to are noted."""
    wanted, name = prompt.response_format, prompt.names.get("response_format", "response_format")
    if wanted is None:
        return {}
    notes.translate(name)
    if wanted.schema is None:
        return {"responseMimeType": _JSON}
    for keyword in unenforced(wanted.schema):
        notes.drop(f"{name}.{keyword}")
    return {"responseMimeType": _JSON, "responseJsonSchema": wanted.schema}


def _others(prompt: Prompt, config: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """The other members of the body; what is about the form of the answer goes into *config*."""
    members: dict[str, Any] = {}
    for name, raw in prompt.others.items():
        if name == "modalities":
            config["responseModalities"] = _modalities(raw)
        elif name in _LIKELIHOODS:
            config[_LIKELIHOODS[name]] = raw
        elif name in _OWN:
            members[_OWN[name]] = raw
        else:
            notes.drop(name)
    return members


def _modalities(raw: Raw) -> list[str]:
    """Raises GatewayError for a modality that does not come through here."""
    wanted = decode_values(raw)
    known = [_MODALITIES.get(item) for item in wanted if isinstance(item, str)] if isinstance(wanted, list) else []
    found = [item for item in known if item is not None]
    if not isinstance(wanted, list) or len(found) < len(wanted) or not found:
        raise refuse("modalities", f"modalities may be {' and '.join(_MODALITIES)} with this model.")
    return found
