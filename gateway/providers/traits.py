"""Which model has which `Traits`.

The rows go by the names that vendors themselves give their models. The same weights at another host may have other
rules, and mostly another name (`moonshotai/kimi-k2`): such a model is asked for nothing out of the ordinary.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import structs

from gateway.core.catalog import Route
from gateway.dialects.traits import PLAIN, Traits

_MAX_NAMES = 1024  # names come from the catalogue, which has some hundred

# OpenAI's reference, `max_completion_tokens` and the guide to reasoning: these models refuse the sampling members.
_OPENAI = Traits(
    names={"max_tokens": "max_completion_tokens"},
    lacks=frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias"}),
    efforts=("low", "medium", "high"),
    places_system=True,
)
_OPENAI_CHAT = Traits(places_system=True)
_O_SERIES = structs.replace(_OPENAI, lacks=_OPENAI.lacks | {"parallel_tool_calls"})
_GPT_5 = structs.replace(_OPENAI, efforts=("minimal", "low", "medium", "high"))
_GPT_5_1 = structs.replace(_OPENAI, efforts=("none", "low", "medium", "high"))
# From 5.2 on this endpoint refuses tools together with reasoning, from 5.4 on also where the effort is left to it.
_GPT_5_X = structs.replace(_OPENAI, efforts=("none", "low", "medium", "high", "xhigh"), effort_with_tools="none")
# The model pages of GPT-6: the rule of 5.4 on tools holds where the effort can be none; 6.1 Sol and 6.2 always think.
_GPT_6 = structs.replace(_GPT_5_X, efforts=(*_GPT_5_X.efforts, "max"))
_GPT_6_THINKS = structs.replace(_OPENAI, efforts=("low", "medium", "high", "xhigh", "max"))
# DeepSeek's guide to its thinking mode. Other efforts are taken there for one of the two.
_DEEPSEEK = Traits(remembers=True)
_DEEPSEEK_V4 = Traits(remembers=True, efforts=("high", "max"), switch=True)
_KIMI = Traits(remembers=True)
# Mistral's reference of chat completions. A member that is not in it gives 422, and so does an id of other form.
_MISTRAL = Traits(
    names={"seed": "random_seed"},
    lacks=frozenset({"user", "logit_bias", "logprobs", "top_logprobs"}),
    continues=True,
    echoes=True,  # its guide to prefixes cuts them off the answer
    call_ids=re.compile(r"[A-Za-z0-9]{9}"),
    call_id_chars=9,
)

# xAI's guide to reasoning: its models refuse the penalties and stop sequences; only one is told how much to think.
_GROK = Traits(lacks=frozenset({"frequency_penalty", "presence_penalty", "stop", "reasoning_effort"}))
_GROK_MINI = Traits(lacks=_GROK.lacks - {"reasoning_effort"}, efforts=("low", "high"))
# Model Studio's reference: thinking is switched by a member of its own.
_QWEN = Traits(toggle="enable_thinking")

# Its vendor's members are taken beside those of the hosts that have a dialect of their own: Bedrock's
# `additionalModelRequestFields`.
_CLAUDE = Traits(own="anthropic_messages")
# Anthropic's guide to adaptive thinking: recommended from 4.6 on, and from 4.7 on there is nothing else.
_ADAPTIVE = structs.replace(_CLAUDE, thinking="adaptive")
# And its guide to system messages within a conversation: from 4.8 on, right behind a turn of the user.
_CLAUDE_5 = structs.replace(_ADAPTIVE, places_system=True)

# Google's guides to thinking, to thought signatures, to function calling and to what is new in each version. Budgets up
# to Gemini 2.5, levels from 3 on. From 3 on calls have to come back signed, and results may have files inside; from 3.6
# on, and in 3.5 Flash-Lite, sampling is not looked at, and a conversation may not end with the model.
_GEMINI_2 = Traits(continues=True)
_GEMINI_2_5 = structs.replace(_GEMINI_2, budgets=(1, 24_576), rests=True)
_GEMINI_2_5_LITE = structs.replace(_GEMINI_2_5, budgets=(512, 24_576))
_GEMINI_2_5_PRO = structs.replace(_GEMINI_2_5, budgets=(128, 32_768), rests=False)
_GEMINI_3 = Traits(signs=True, sees_results=True, continues=True, efforts=("minimal", "low", "medium", "high"))
_GEMINI_3_PRO = structs.replace(_GEMINI_3, efforts=("low", "high"))
_GEMINI_3_1_PRO = structs.replace(_GEMINI_3, efforts=("low", "medium", "high"))
_GEMINI_3_6 = structs.replace(_GEMINI_3, continues=False, lacks=frozenset({"temperature", "top_p", "top_k"}))
_GEMINI_3_7 = structs.replace(_GEMINI_3_6, efforts=("low", "medium", "high"))
_GEMINI_4 = structs.replace(_GEMINI_3_6, efforts=("low", "medium", "high"))
_GEMINI_4_HYDROGEN = structs.replace(_GEMINI_3_6, efforts=("low", "medium", "high", "xhigh"))
# Anthropic's guide of migration: from 4.6 on a conversation that ends with the assistant's turn is a 400.
_PREFILLED = structs.replace(_CLAUDE, prefills=True)
_PREFILLED_NAMES = (
    "3-", "opus-4-0", "opus-4-1", "opus-4-2", "opus-4-5", "sonnet-4-0", "sonnet-4-2", "sonnet-4-5", "haiku-4-5",
)  # fmt: skip

# By the beginning of the name; the first that fits.
_ROWS: tuple[tuple[str, Traits], ...] = (
    ("gpt-5-chat", Traits(names=_OPENAI.names, places_system=True)),
    *((name, _OPENAI_CHAT) for name in ("gpt-4", "gpt-3.5", "chatgpt-")),
    ("gpt-5-pro", structs.replace(_OPENAI, efforts=("high",))),
    ("gpt-5.1", _GPT_5_1),
    ("gpt-5.", _GPT_5_X),
    ("gpt-5", _GPT_5),
    ("gpt-6.1-sol", _GPT_6_THINKS),
    ("gpt-6.2", _GPT_6_THINKS),
    ("gpt-6", _GPT_6),
    ("o1", _O_SERIES),
    ("o3", _O_SERIES),
    ("o4", _O_SERIES),
    ("grok-3-mini", _GROK_MINI),
    ("grok-4", _GROK),
    ("grok-code", _GROK),
    *((name, _QWEN) for name in ("qwen3-max", "qwen3.", "qwen-plus", "qwen-flash", "qwen-turbo")),
    ("gpt-oss", Traits(efforts=_OPENAI.efforts)),
    ("openai/gpt-oss", Traits(efforts=_OPENAI.efforts)),
    ("openai.gpt-oss", Traits(efforts=_OPENAI.efforts)),
    ("deepseek-v4", _DEEPSEEK_V4),
    ("deepseek-flash", _DEEPSEEK_V4),  # V4.1 under a name that keeps
    ("deepseek-chat", _DEEPSEEK),
    ("deepseek-reasoner", _DEEPSEEK),
    ("kimi-k2.", structs.replace(_KIMI, switch=True)),
    ("kimi-", _KIMI),
    *((name, _MISTRAL) for name in ("mistral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-")),
    ("gemini-2.5-pro", _GEMINI_2_5_PRO),
    ("gemini-2.5-flash-lite", _GEMINI_2_5_LITE),
    ("gemini-2.5-flash-image", _GEMINI_2),
    ("gemini-2.5-", _GEMINI_2_5),
    ("gemini-2", _GEMINI_2),
    ("gemini-3-pro", _GEMINI_3_PRO),
    ("gemini-3.1-pro", _GEMINI_3_1_PRO),
    ("gemini-3-", _GEMINI_3),
    ("gemini-3.1-", _GEMINI_3),
    ("gemini-3.5-", _GEMINI_3_6),  # 3.5 Flash is answered by 3.6
    ("gemini-3.6-", _GEMINI_3_6),
    ("gemini-3.", _GEMINI_3_7),
    ("gemini-4-hydrogen", _GEMINI_4_HYDROGEN),
    # Newer ones, and the names that move on (`gemini-flash-latest`), get what all of the newest take.
    ("gemini-", _GEMINI_4),
    *((f"claude-{name}", _ADAPTIVE) for name in ("opus-4-6", "sonnet-4-6", "opus-4-7")),
    *((f"claude-{name}", _CLAUDE_5) for name in ("opus-4-8", "opus-5", "sonnet-5", "haiku-5", "fable-5", "mythos-")),
    *((f"claude-{name}", _PREFILLED) for name in _PREFILLED_NAMES),
    *((f"claude-{name}", _CLAUDE) for name in ("2", "instant", "v2")),
    ("claude-", _CLAUDE_5),  # newer ones get what the newest take
    *((name, _MISTRAL) for name in ("open-mistral-", "open-mixtral-", "labs-", "voxtral-")),
)

# What Bedrock puts before a vendor's name for its model: an ARN, the area of an inference profile, the vendor. The rest
# is the vendor's own name only for this one.
_HOSTED = "anthropic."


def takes_prefill(route: Route) -> bool:
    """
    Whether the model at *route* goes on, by its vendor's documents, with an assistant's turn that the call ends with.

    In OpenAI's dialect that takes `prefix`, whose models repeat it. Gemini takes such a turn up to 3.5, but Google does
    not say that it goes on with the text.
    """
    traits, dialect = traits_of(route.model), route.provider.dialect
    if dialect == "openai_chat":
        return traits.continues and traits.echoes
    return traits.prefills and dialect in ("anthropic_messages", "bedrock_converse")


def _spelled(name: str) -> str:
    """
    *name* as Anthropic spells it, if it is a Claude's: others write `claude-3.7-sonnet`, `claude-opus-4@20250514`, or
    `claude-sonnet-4` for `claude-sonnet-4-0`.
    """
    if not name.startswith("claude-"):
        return name
    spelled = name.replace(".", "-").replace("@", "-")
    return f"{spelled}-0" if spelled in ("claude-opus-4", "claude-sonnet-4") else spelled


@lru_cache(maxsize=_MAX_NAMES)
def traits_of(*names: str) -> Traits:
    """The traits of a model, by the first of its *names* that says anything; the first is its provider's own."""
    bare = [_spelled(name.rpartition(_HOSTED)[2]) for name in names]
    return next((traits for name in bare for start, traits in _ROWS if name.startswith(start)), PLAIN)
