"""Leave a stream after a while. `break` alone would not close the connection."""

import os
import time

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

stream = client.chat.completions.create(
    model="demo-long",
    messages=[{"role": "user", "content": "Write a long essay"}],
    stream=True,
)

deadline = time.time() + 1
collected = []
for chunk in stream:
    delta = chunk.choices[0].delta.content or ""
    collected.append(delta)
    if time.time() > deadline:
        stream.close()
        break

print("Collected:", "".join(collected))
