"""The same by the Anthropic endpoint."""

import os

from anthropic import Anthropic

client = Anthropic(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/anthropic",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

with client.messages.stream(
    model="demo-story",
    max_tokens=1024,
    messages=[{"role": "user", "content": "Tell me a short story"}],
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
print(stream.get_final_message().usage.output_tokens, "tokens")
