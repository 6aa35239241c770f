"""Runs of the playground: bodies with panels, and what their frames say of each."""

from __future__ import annotations

from typing import Any

from tests.support.frames import chat

RUN = "/anoman/v1/playground/run"


def run_of(*models: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A streaming run of panels "a", "b", "c" with *models*, or the members given for one."""
    panels = [
        {"id": name, **(model if isinstance(model, dict) else {"model": model})}
        for name, model in zip("abcd", models, strict=False)
    ]
    body = chat("", **more)
    del body["model"]
    return body | {"panels": panels}


def by_panel(frames: list[Any]) -> dict[str, list[Any]]:
    """The parsed *frames* of each panel, in their order; all but the terminator are some panel's."""
    assert frames[-1] == "[DONE]"
    assert frames.count("[DONE]") == 1
    out: dict[str, list[Any]] = {}
    for item in frames[:-1]:
        assert list(item)[-1] == "panel"
        out.setdefault(item.pop("panel"), []).append(item)
    return out
