"""JSON mode. The demo model repeats what it is told; a real one would write the object itself."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)

response = client.chat.completions.create(
    model="demo-echo",
    messages=[{"role": "user", "content": '{"city": "Jakarta", "country": "Indonesia"}'}],
    response_format={"type": "json_object"},
)
print(json.loads(response.choices[0].message.content)["country"])
