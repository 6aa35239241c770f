// Tool loops to their end, by the loops that the Node SDKs bring along.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const MAX_ROUNDS = 4; // two more than the scripts have
const DESCRIPTION = "The weather in a city";

const weather = (loop) => ({ city }) => {
  loop.cities.push(city);
  return `${city.length} degrees in ${city}`;
};

async function openaiLoop(ask, loop, stream) {
  const client = new OpenAI({ baseURL: `${ask.base_url}/v1`, apiKey: ask.key, maxRetries: 0 });
  const runner = client.chat.completions.runTools(
    {
      model: ask.model,
      messages: [{ role: "user", content: ask.prompt }],
      stream,
      tools: [
        {
          type: "function",
          function: {
            name: "get_weather",
            description: DESCRIPTION,
            parameters: ask.tool,
            parse: JSON.parse,
            function: weather(loop),
          },
        },
      ],
    },
    { maxChatCompletions: MAX_ROUNDS },
  );
  loop.text = await runner.finalContent();
  for (const { usage } of runner.allChatCompletions()) loop.usages.push([usage.prompt_tokens, usage.completion_tokens]);
}

async function anthropicLoop(ask, loop, stream) {
  const client = new Anthropic({ baseURL: `${ask.base_url}/anthropic`, apiKey: ask.key, maxRetries: 0 });
  const run = weather(loop);
  const runner = client.beta.messages.toolRunner({
    model: ask.model,
    max_tokens: 100,
    max_iterations: MAX_ROUNDS,
    messages: [{ role: "user", content: ask.prompt }],
    stream,
    tools: [betaTool({ name: "get_weather", description: DESCRIPTION, inputSchema: ask.tool, run })],
  });
  for await (const turn of runner) {
    const message = stream ? await turn.finalMessage() : turn;
    loop.text = message.content.map((block) => block.text ?? "").join("");
    loop.usages.push([message.usage.input_tokens, message.usage.output_tokens]);
  }
}

const vercelModel = {
  openai: (ask) =>
    createOpenAICompatible({ name: "gateway", baseURL: `${ask.base_url}/v1`, apiKey: ask.key, includeUsage: true })(
      ask.model,
    ),
  anthropic: (ask) => createAnthropic({ baseURL: `${ask.base_url}/anthropic/v1`, apiKey: ask.key })(ask.model),
};

async function vercelLoop(dialect, ask, loop, stream) {
  const options = {
    model: vercelModel[dialect](ask),
    prompt: ask.prompt,
    maxOutputTokens: 100,
    maxRetries: 0,
    stopWhen: isStepCount(MAX_ROUNDS),
    tools: {
      get_weather: tool({ description: DESCRIPTION, inputSchema: jsonSchema(ask.tool), execute: weather(loop) }),
    },
  };
  const result = stream ? streamText({ ...options, onError: () => {} }) : await generateText(options);
  loop.text = await result.text;
  for (const { usage } of await result.steps) loop.usages.push([usage.inputTokens, usage.outputTokens]);
}

export const loops = {
  "openai-node-loop": (ask, loop) => openaiLoop(ask, loop, false),
  "openai-node-loop-stream": (ask, loop) => openaiLoop(ask, loop, true),
  "anthropic-node-loop": (ask, loop) => anthropicLoop(ask, loop, false),
  "anthropic-node-loop-stream": (ask, loop) => anthropicLoop(ask, loop, true),
  "vercel-openai-loop": (ask, loop) => vercelLoop("openai", ask, loop, false),
  "vercel-openai-loop-stream": (ask, loop) => vercelLoop("openai", ask, loop, true),
  "vercel-anthropic-loop": (ask, loop) => vercelLoop("anthropic", ask, loop, false),
  "vercel-anthropic-loop-stream": (ask, loop) => vercelLoop("anthropic", ask, loop, true),
};
