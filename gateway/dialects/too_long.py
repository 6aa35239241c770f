"""How providers say that a prompt is longer than the model's context, each in words of its own."""

from __future__ import annotations

import re

# `error.code` or `error.type`: OpenAI and who follows it; llama.cpp's server; Z.ai's number.
_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "1261"})

# By the providers' own error references and by users' reports of them. Figures in the sentences vary and are left out.
_WORDS: tuple[tuple[str, str], ...] = (
    ("context_length_exceeded", "a code that stands in the sentence"),
    ("context length", "OpenAI, DeepSeek, OpenRouter, vLLM, Together, Fireworks: the model's maximum context length"),
    ("context window", "OpenAI's newer models; MiniMax"),
    (r"prompt (?:is )?too long", "Anthropic; Ollama, Z.ai"),
    ("exceed context limit", "Anthropic, where the prompt fits, but not with `max_tokens`"),
    ("prompt exceeds max length", "Z.ai"),
    ("reduce the length of the messages", "Groq, Cerebras"),
    (r"too large for model with \d+ maximum", "Mistral"),
    (r"maximum prompt length is \d+", "xAI"),
    (r"inputs. tokens \+ .max_new_tokens. must be", "Together, Hugging Face's server"),
    (r"range of input length should be", "Qwen (DashScope)"),
    ("exceeded model token limit", "Moonshot"),
    (r"exceeds the (?:maximum|max) (?:allowed )?input length", "OpenRouter's hosts, DashScope"),
    (r"longer than the maximum model length", "vLLM"),
    ("available context size", "llama.cpp's server"),
    ("input token count", "Gemini: exceeds the maximum number of tokens allowed"),
    ("input is too long", "Bedrock"),
    ("too many input tokens", "Bedrock"),
    ("too many tokens", "Cohere's models"),
)
_TOO_LONG = re.compile("|".join(f"(?:{words})" for words, _ in _WORDS))


def says_too_long(code: object, message: object) -> bool:
    """Whether an error with *code* and *message* is about the length of the prompt. Linear in the message's length."""
    if isinstance(code, str | int) and str(code) in _CODES:
        return True
    return isinstance(message, str) and _TOO_LONG.search(message.lower()) is not None
