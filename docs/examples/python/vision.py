"""A picture as a data URL."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)
# One grey pixel.
pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCB2kUIOwAAAABJRU5ErkJggg=="

response = client.chat.completions.create(
    model="demo-vision",
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is in this picture?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}},
            ],
        },
    ],
)
print(response.choices[0].message.content)
