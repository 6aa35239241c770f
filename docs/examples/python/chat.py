"""One question, one answer, and what it cost."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

response = client.chat.completions.create(
    model="demo-echo",
    messages=[
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "The capital of Indonesia is Jakarta."},
    ],
    temperature=0.7,
    max_tokens=200,
)
print(response.choices[0].message.content)
print(response.usage.total_tokens, "tokens,", response.model_extra["_anoman"]["cost_usd"], "USD")
