"""A tool: the model asks for a call, the program makes it, the model talks about the result."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("ANOMAN_BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("ANOMAN_API_KEY", "anm-sk-demo"),
)
tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "units"],
            },
        },
    },
]
messages = [{"role": "user", "content": "What is the weather in Jakarta?"}]

response = client.chat.completions.create(model="demo-tools", messages=messages, tools=tools, tool_choice="auto")
tool_call = response.choices[0].message.tool_calls[0]
print(tool_call.function.name, tool_call.function.arguments)

city = json.loads(tool_call.function.arguments)["city"]
messages.append(response.choices[0].message)
messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": f"31 degrees in {city}"})
response = client.chat.completions.create(model="demo-tools", messages=messages, tools=tools)
print(response.choices[0].message.content)
