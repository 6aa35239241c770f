"""A provider that breaks off raises; what was said so far is not an answer."""

import os

from openai import APIError, OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

collected = []
try:
    stream = client.chat.completions.create(
        model="demo-broken",
        messages=[{"role": "user", "content": "Tell me a short story"}],
        stream=True,
    )
    for chunk in stream:
        delta = chunk.choices[0].delta.content or ""
        collected.append(delta)
except APIError as error:
    extension = error.body["_anoman"]
    print(error.code, "-", extension["failure_class"], "after", extension["completion_tokens"], "tokens")
    collected.clear()
