"""Gemini's `usageMetadata`: thinking is counted beside the answer, what built-in tools read beside the prompt."""

from __future__ import annotations

from gateway.core.usage import count
from gateway.dialects.neutral import Counted

_NAMES = {
    "prompt": "promptTokenCount",
    "tools": "toolUsePromptTokenCount",
    "cached": "cachedContentTokenCount",
    "answer": "candidatesTokenCount",
    "thoughts": "thoughtsTokenCount",
    "total": "totalTokenCount",
}


class UsageReader:
    """Merges what every chunk tells: per field, the last explicit sane value counts.

    Attributes:
        odd: A count was none.
    """

    def __init__(self) -> None:
        self.odd = False
        self._counts: dict[str, int] = {}

    def take(self, metadata: object) -> None:
        """Merge one `usageMetadata`; anything but an object is ignored."""
        if not isinstance(metadata, dict):
            self.odd = True
            return
        for name, member in _NAMES.items():
            said = metadata.get(member)
            if said is None:
                continue
            value = count(said)
            if value is None:
                self.odd = True
            else:
                self._counts[name] = value

    def prompt(self) -> Counted:
        """What is known of the prompt alone."""
        said = self.counted(silent=False)
        return Counted(prompt_tokens=said.prompt_tokens, cached_tokens=said.cached_tokens)

    def counted(self, *, silent: bool) -> Counted:
        """
        The tokens so far.

        Args:
            silent: Nothing has been said, so that no count of an answer means none.
        """
        counts = self._counts
        prompt = counts["prompt"] + counts.get("tools", 0) if "prompt" in counts else None
        completion = self._completion(silent=silent)
        cached, thoughts = counts.get("cached"), counts.get("thoughts")
        return Counted(
            prompt_tokens=prompt,
            completion_tokens=completion,
            # parts of a prompt of unknown length could be more than our estimate of the whole
            cached_tokens=min(cached, prompt) if cached is not None and prompt is not None else None,
            reasoning_tokens=min(thoughts, completion) if thoughts is not None and completion is not None else None,
        )

    def _completion(self, *, silent: bool) -> int | None:
        """Answer and thinking, as both are billed; None while neither is known, though something has been said."""
        counts = self._counts
        prompt, tools, total = counts.get("prompt"), counts.get("tools", 0), counts.get("total")
        answer, thoughts = counts.get("answer"), counts.get("thoughts", 0)
        if answer is None:
            if prompt is not None and total is not None and total > prompt + tools + thoughts:
                return total - prompt - tools
            return thoughts if silent and (prompt is not None or "thoughts" in counts) else None
        if prompt is not None and thoughts and total == prompt + tools + answer:  # a host that counts it inside
            return answer
        return answer + thoughts
