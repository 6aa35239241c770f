"""What a policy says of how long a call is, and how long an answer it may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, structs

from gateway.core.call import Call
from gateway.core.errors import POLICY_DENIED, GatewayError
from gateway.core.guarding import CallTerms
from gateway.dialects.answer_length import limits_said
from gateway.dialects.spoken import pieces_of, texts_of

# Where a call of OpenAI's says nothing: providers that know the older name alone get that by their quirks. Anthropic's
# calls always say.
_DEFAULT = "max_completion_tokens"
_AT_ONCE_BYTES = 16 * 1024  # of messages that are read in one go: some milliseconds of the shortest ones


def bounded(call: Call, terms: CallTerms, longest: int | None = None) -> Call:
    """
    *call* with the longest answer that *terms* let it have, where it does not say.

    Args:
        longest: That of its model, if it is known: providers refuse a call that asks for more.

    Raises:
        GatewayError: `policy_denied`, of one that asks for more.
    """
    most = terms.max_tokens
    if most is None or call.task == "count":
        return call
    said = limits_said(call)
    for name, tokens in said.items():
        if tokens is None or tokens > most:
            message = f"{name}: the policy of this key allows at most {most} tokens, by `calls.max_tokens`."
            raise GatewayError(POLICY_DENIED, message, param=name)
    if said:
        return call
    default = most if longest is None else min(most, longest)
    return structs.replace(call, fields={**call.fields, _DEFAULT: Raw(b"%d" % default)})


def measured(call: Call, terms: CallTerms) -> Iterator[int]:
    """
    See that the texts of *call* are not longer than *terms* let them be: characters so far, with stops where others can
    be served; nothing where its bytes already say so.

    Raises:
        GatewayError: `policy_denied`.
    """
    most = terms.max_prompt_chars
    if most is None or (call.held is None and sum(map(len, call.fields.values())) <= most):
        return  # a character takes a byte of JSON at least
    chars = seen = 0
    for piece in pieces_of(call):
        chars += sum([len(heard.text.text) for heard in texts_of(piece, call)])
        if chars > most:
            message = f"The texts of this request are longer than the {most} characters that the policy of this key "
            raise GatewayError(POLICY_DENIED, f"{message}allows: `calls.max_prompt_chars`.", param=str(piece.path[0]))
        seen += len(piece.raw)
        if seen >= _AT_ONCE_BYTES:
            yield chars
            seen = 0
