"""What a policy says of a call's own words: how long an answer it may ask for."""

from __future__ import annotations

from msgspec import Raw, structs

from gateway.core.call import Call
from gateway.core.errors import POLICY_DENIED, GatewayError
from gateway.core.guarding import CallTerms
from gateway.dialects.answer_length import limits_said

# Where a call of OpenAI's says nothing: providers that know the older name alone get that by their quirks. Anthropic's
# calls always say.
_DEFAULT = "max_completion_tokens"


def bounded(call: Call, terms: CallTerms) -> Call:
    """
    *call* with the longest answer that *terms* let it have, where it does not say.

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
    return structs.replace(call, fields={**call.fields, _DEFAULT: Raw(b"%d" % most)})
