"""The answer, as it is made."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

stream = client.chat.completions.create(
    model="demo-story",
    messages=[{"role": "user", "content": "Tell me a short story"}],
    stream=True,
)

for chunk in stream:
    delta = chunk.choices[0].delta.content or ""
    print(delta, end="", flush=True)
print()
