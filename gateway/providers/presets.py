"""One row per vendor that speaks a dialect we know. An oddity is a named function or a set of names, never a flag.

Base URLs, credential headers and quirks are those of the vendors' public API references, if no other source is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from gateway.core.catalog import DialectName, Path, ProviderType, Quirk
from gateway.providers.aws import BEDROCK_RUNTIME, AwsService, area
from gateway.providers.quirks import fold_max_completion_tokens, system_for_developer, text_as_string

# The last dated version that is no preview, by Azure's reference; it knows `stream_options` and JSON schemas.
AZURE_VERSION = "2024-10-21"


@dataclass(frozen=True, slots=True)
class Preset:
    """A vendor.

    Attributes:
        auth: Makes the credential header of a key.
        base_url: None means that the operator has to give one.
        key_variable: The environment variable that its own SDK reads; None where a key is not always needed.
        path: See `Provider`.
        omits: See `Provider`.
        quirks: See `Provider`. Arrays that are empty, and limits above the model's, need none: no vendor wants them.
        service: Of those in Amazon's cloud: their address follows from the region, and requests may be signed.
        fetches_images: Whether its reference says that an image may be given by its URL. Others get the image itself:
            vendors whose references say nothing or the contrary (Moonshot, Ollama), and servers in the operator's own
            network, vLLM among them, since what they can reach is no choice of a caller.
        area: Where calls to a model may be computed, by the provider's name for it; None where that is its region.
        note: What an operator should know, for the table in the documents.
    """

    name: str
    dialect: DialectName
    auth: Callable[[str], tuple[str, str]]
    base_url: str | None = None
    type: ProviderType = "cloud_direct"
    region: str = "US"
    key_variable: str | None = None
    path: Path | None = None
    omits: frozenset[str] = frozenset()
    quirks: tuple[Quirk, ...] = ()
    fetches_images: bool = False
    service: AwsService | None = None
    area: Callable[[str], str | None] | None = None
    note: str = ""


def bearer(key: str) -> tuple[str, str]:
    """The usual `Authorization: Bearer` header."""
    return "Authorization", f"Bearer {key}"


def x_api_key(key: str) -> tuple[str, str]:
    """Anthropic's own header."""
    return "x-api-key", key


def api_key(key: str) -> tuple[str, str]:
    """Azure's own header."""
    return "api-key", key


def x_goog_api_key(key: str) -> tuple[str, str]:
    """Google's own header."""
    return "x-goog-api-key", key


def azure_path(model: str, *, stream: bool) -> str:
    """Azure names a model by its deployment, in the path; the body's `model` is not looked at."""
    return f"/openai/deployments/{quote(model, safe='')}/chat/completions?api-version={AZURE_VERSION}"


# All that servers are known to lack which copy OpenAI's dialect as it was at first.
_PLAIN_CHAT = (text_as_string, fold_max_completion_tokens, system_for_developer)

_ROWS = (
    Preset(
        "openai", "openai_chat", bearer, "https://api.openai.com/v1", key_variable="OPENAI_API_KEY", fetches_images=True
    ),
    Preset(
        "anthropic",
        "anthropic_messages",
        x_api_key,
        "https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        fetches_images=True,
    ),
    Preset(
        "azure",
        "openai_chat",
        api_key,
        key_variable="AZURE_OPENAI_API_KEY",
        fetches_images=True,
        path=azure_path,
        # Its guide to reasoning: `developer` came with the version after, and models that know it take `system` for it.
        quirks=(system_for_developer,),
        note="`https://RESOURCE.openai.azure.com`; a route's `model` is the name of the deployment. It is asked by "
        f"`api-version={AZURE_VERSION}`; for models that want a newer one use `openai_compatible` with "
        "`https://RESOURCE.openai.azure.com/openai/v1`",
    ),
    Preset(
        "bedrock",
        "bedrock_converse",
        bearer,
        type="bedrock",
        key_variable="AWS_BEARER_TOKEN_BEDROCK",
        service=BEDROCK_RUNTIME,
        area=area,
        note="`api_key` is a key of Bedrock's own; without one requests are signed with the account's keys, "
        "`aws_access_key_id` and `aws_secret_access_key`. A route's `model` is the id of a model or of an inference "
        "profile, or an ARN; the region of a profile is the area that its id begins with (`us.`, `apac.`, `global.`)",
    ),
    Preset(
        "cerebras",
        "openai_chat",
        bearer,
        "https://api.cerebras.ai/v1",
        key_variable="CEREBRAS_API_KEY",
        # By musistudio/llms#25 it answers a list with "messages.0.system.content: Input should be a valid string".
        quirks=(text_as_string,),
    ),
    Preset(
        "deepseek",
        "openai_chat",
        bearer,
        "https://api.deepseek.com/v1",
        region="CN",
        key_variable="DEEPSEEK_API_KEY",
        quirks=_PLAIN_CHAT,  # "invalid type: sequence, expected a string" (cline/cline#230)
    ),
    Preset(
        "fireworks",
        "openai_chat",
        bearer,
        "https://api.fireworks.ai/inference/v1",
        key_variable="FIREWORKS_API_KEY",
        fetches_images=True,
        quirks=(fold_max_completion_tokens, system_for_developer),  # it takes lists
    ),
    Preset(
        "gemini",
        "gemini_content",
        x_goog_api_key,
        "https://generativelanguage.googleapis.com/v1beta",
        key_variable="GEMINI_API_KEY",
        note="its own API, with keys of Google AI Studio",
    ),
    Preset(
        "groq",
        "openai_chat",
        bearer,
        "https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        fetches_images=True,
        # "for 'role:system' the following must be satisfied[('messages.0.content' : value must be a string)]", and so
        # for tools: OpenHands/OpenHands#4643, CherryHQ/cherry-studio#3307.
        quirks=(text_as_string,),
    ),
    Preset(
        "mistral",
        "openai_chat",
        bearer,
        "https://api.mistral.ai/v1",
        region="EU",  # its terms: hosted there by default
        key_variable="MISTRAL_API_KEY",
        fetches_images=True,
        # A member that its reference does not have gives 422, and the usage is on the finish chunk anyway.
        omits=frozenset({"stream_options"}),
        quirks=(fold_max_completion_tokens, system_for_developer),  # the same 422 (editor-code-assistant/eca#231)
    ),
    Preset(
        "moonshot",
        "openai_chat",
        bearer,
        "https://api.moonshot.ai/v1",
        region="CN",  # the cautious reading: its documents do not say where it computes
        key_variable="MOONSHOT_API_KEY",
        quirks=(system_for_developer,),  # `max_completion_tokens` is the name there, too
        note="the international platform; keys of the Chinese one need `https://api.moonshot.cn/v1`",
    ),
    Preset(
        "ollama",
        "openai_chat",
        bearer,
        "http://127.0.0.1:11434/v1",
        type="self_hosted",
        region="ID",
        # openai/openai.go: each part of a list becomes a message of its own, in which a tool's result has no name, and
        # `max_completion_tokens` is not read. By its issues, templates leave out roles that they do not know.
        quirks=_PLAIN_CHAT,
        note="on the same machine; it wants no key",
    ),
    Preset(
        "openrouter",
        "openai_chat",
        bearer,
        "https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        fetches_images=True,
    ),
    Preset(
        "qwen",
        "openai_chat",
        bearer,
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        # Its guide to regions: this domain keeps data in Singapore and computes anywhere but in mainland China.
        region="INTL",
        key_variable="DASHSCOPE_API_KEY",
        fetches_images=True,
        # Lists stay, as marks for its cache stand in them. "developer is not one of ['system', ...]" (proma#1496).
        quirks=(fold_max_completion_tokens, system_for_developer),
        note="Model Studio's international mode: data rest in Singapore, inference runs anywhere outside of mainland "
        "China. The domain is the one that all workspaces share; one's own is "
        "`https://WORKSPACE.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1`",
    ),
    Preset(
        "together",
        "openai_chat",
        bearer,
        "https://api.together.ai/v1",
        key_variable="TOGETHER_API_KEY",
        fetches_images=True,
        quirks=_PLAIN_CHAT,
    ),
    Preset("xai", "openai_chat", bearer, "https://api.x.ai/v1", key_variable="XAI_API_KEY", fetches_images=True),
    Preset("vllm", "openai_chat", bearer, type="self_hosted", region="ID", note="a key only where it has `--api-key`"),
    # Nothing is known of it, and what it cannot take it may well say; the second is for those that do not.
    Preset("openai_compatible", "openai_chat", bearer, type="self_hosted", region="ID"),
    Preset(
        "openai_compatible_plain",
        "openai_chat",
        bearer,
        type="self_hosted",
        region="ID",
        quirks=_PLAIN_CHAT,
        note="the same, for servers that take text as strings only, `max_tokens` and `system`, but not the newer "
        "`max_completion_tokens` and `developer`",
    ),
    Preset("anthropic_compatible", "anthropic_messages", x_api_key, type="self_hosted", region="ID"),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ROWS}
