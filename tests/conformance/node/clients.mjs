// The Node SDKs, used as their documentation says. Reads one request per line, answers one outcome per line.
import { createInterface } from "node:readline";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

import { loops } from "./loops.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const fresh = () => ({ text: "", finish: null, usage: null, usages: 0, tool: null, extension: null, left: false });
const retries = (ask) => (ask.retries === null ? {} : { maxRetries: ask.retries });

// The names a user can test for: of the classes, and the one that the AI SDK gives its errors.
function names(error) {
  const out = [error.name];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) out.push(kind.name);
  return out;
}

function codeOf(error) {
  const body = error.responseBody ? JSON.parse(error.responseBody) : error;
  return error.code ?? body.error?.error?.code ?? body.error?.code ?? error.data?.error?.code ?? null;
}

const failed = (out, error) => ({
  ...out,
  errors: names(error),
  status: error.status ?? error.statusCode ?? null,
  code: codeOf(error),
});

// -- openai --

const openai = (ask) =>
  new OpenAI({ baseURL: `${ask.base_url}/v1`, apiKey: ask.key, defaultHeaders: ask.headers, ...retries(ask) });

function chat(ask) {
  const body = { model: ask.model, messages: [{ role: "user", content: ask.prompt }] };
  if (ask.wants === "tool") {
    body.tools = [{ type: "function", function: { name: "get_weather", parameters: ask.tool } }];
    body.tool_choice = "auto";
  }
  if (ask.wants === "json") body.response_format = { type: "json_object" };
  return body;
}

function takeChunk(out, chunk) {
  const delta = chunk.choices[0]?.delta?.content ?? "";
  out.text += delta;
  for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
    const [name, args] = out.tool ?? ["", ""];
    out.tool = [name + (call.function?.name ?? ""), args + (call.function?.arguments ?? "")];
  }
  out.finish = chunk.choices[0]?.finish_reason ?? out.finish;
  takeUsage(out, chunk);
  return delta ? 1 : 0;
}

function takeUsage(out, answer) {
  if (answer.usage) {
    out.usage = [answer.usage.prompt_tokens, answer.usage.completion_tokens];
    out.usages += 1;
  }
  out.extension = answer._anoman ?? out.extension;
}

function takeCompletion(out, answer) {
  const { message, finish_reason } = answer.choices[0];
  out.text = message.content ?? "";
  out.finish = finish_reason;
  for (const call of message.tool_calls ?? []) out.tool = [call.function.name, call.function.arguments];
  takeUsage(out, answer);
}

async function openaiPlain(ask, out) {
  const client = openai(ask);
  if (!ask.stream) return takeCompletion(out, await client.chat.completions.create(chat(ask)));
  const controller = new AbortController();
  const stream = await client.chat.completions.create({ ...chat(ask), stream: true }, { signal: controller.signal });
  let pieces = 0;
  for await (const chunk of stream) {
    pieces += takeChunk(out, chunk);
    if (pieces === ask.leave_after) {
      controller.abort();
      out.left = true;
    }
  }
}

async function openaiHelper(ask, out) {
  const runner = openai(ask).chat.completions.stream(chat(ask));
  let pieces = 0;
  runner.on("content", (delta) => {
    out.text += delta;
    pieces += 1;
    if (pieces === ask.leave_after) {
      runner.abort();
      out.left = true;
    }
  });
  runner.on("chunk", (chunk) => takeUsage(out, chunk));
  const final = await runner.finalChatCompletion();
  const whole = fresh();
  takeCompletion(whole, final);
  if (whole.text && whole.text !== out.text) throw new Error("the helper's text is another one");
  Object.assign(out, { finish: whole.finish, usage: whole.usage, tool: whole.tool });
}

// -- anthropic --

const anthropic = (ask) =>
  new Anthropic({ baseURL: `${ask.base_url}/anthropic`, apiKey: ask.key, defaultHeaders: ask.headers, ...retries(ask) });

function messages(ask) {
  const body = { model: ask.model, max_tokens: 100, messages: [{ role: "user", content: ask.prompt }] };
  if (ask.wants === "tool") body.tools = [{ name: "get_weather", input_schema: ask.tool }];
  return body;
}

function takeEvent(out, event) {
  const { type, delta } = event;
  if (type === "message_start") out.usage = [event.message.usage.input_tokens, 0];
  if (type === "content_block_start" && event.content_block.type === "tool_use") out.tool = [event.content_block.name, ""];
  if (delta?.type === "input_json_delta") out.tool[1] += delta.partial_json;
  if (delta?.type === "text_delta") out.text += delta.text;
  if (type === "message_delta") {
    out.finish = delta.stop_reason;
    out.usage = [event.usage.input_tokens ?? out.usage[0], event.usage.output_tokens];
    out.usages += 1;
    out.extension = event._anoman ?? null;
  }
  return delta?.type === "text_delta" ? 1 : 0;
}

function takeMessage(out, message) {
  out.text = message.content.map((block) => block.text ?? "").join("");
  for (const block of message.content) if (block.type === "tool_use") out.tool = [block.name, JSON.stringify(block.input)];
  out.finish = message.stop_reason;
  out.usage = [message.usage.input_tokens, message.usage.output_tokens];
  out.usages += 1;
  out.extension = message._anoman ?? null;
}

async function anthropicPlain(ask, out) {
  const client = anthropic(ask);
  if (!ask.stream) return takeMessage(out, await client.messages.create(messages(ask)));
  const controller = new AbortController();
  const stream = await client.messages.create({ ...messages(ask), stream: true }, { signal: controller.signal });
  let pieces = 0;
  for await (const event of stream) {
    pieces += takeEvent(out, event);
    if (pieces === ask.leave_after) {
      controller.abort();
      out.left = true;
    }
  }
}

async function anthropicHelper(ask, out) {
  const stream = anthropic(ask).messages.stream(messages(ask));
  let pieces = 0;
  stream.on("streamEvent", (event) => {
    pieces += takeEvent(out, event);
    if (pieces === ask.leave_after) {
      stream.abort();
      out.left = true;
    }
  });
  const final = await stream.finalMessage();
  const whole = fresh();
  takeMessage(whole, final);
  if (whole.text !== out.text) throw new Error("the helper's text is another one");
  Object.assign(out, { finish: whole.finish, usage: whole.usage, tool: whole.tool });
}

// -- Vercel AI SDK --

const vercelModel = {
  openai: (ask) =>
    createOpenAICompatible({
      name: "gateway",
      baseURL: `${ask.base_url}/v1`,
      apiKey: ask.key,
      headers: ask.headers,
      includeUsage: true,
    })(ask.model),
  anthropic: (ask) =>
    createAnthropic({ baseURL: `${ask.base_url}/anthropic/v1`, apiKey: ask.key, headers: ask.headers })(ask.model),
};

function takeVercelUsage(out, usage) {
  out.usage = [usage.inputTokens ?? null, usage.outputTokens ?? null];
  out.usages += 1;
}

function takeVercelTool(out, calls) {
  for (const call of calls) out.tool = [call.toolName, JSON.stringify(call.input)];
}

async function vercel(dialect, ask, out) {
  const controller = new AbortController();
  const tools = { get_weather: tool({ inputSchema: jsonSchema(ask.tool) }) };
  const options = {
    model: vercelModel[dialect](ask),
    prompt: ask.prompt,
    maxOutputTokens: 100,
    abortSignal: controller.signal,
    ...(ask.wants === "tool" ? { tools } : {}),
    ...(ask.wants === "json" ? { providerOptions: { gateway: { response_format: { type: "json_object" } } } } : {}),
    ...retries(ask),
  };
  if (!ask.stream) {
    const result = await generateText(options);
    out.text = result.text;
    out.finish = result.finishReason;
    takeVercelTool(out, result.toolCalls);
    return takeVercelUsage(out, result.usage);
  }
  let pieces = 0;
  const result = streamText({ ...options, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") {
      out.text += part.text;
      pieces += 1;
      if (pieces === ask.leave_after) {
        controller.abort();
        out.left = true;
        return;
      }
    }
    if (part.type === "tool-call") takeVercelTool(out, [part]);
    if (part.type === "finish-step") {
      out.finish = part.finishReason;
      takeVercelUsage(out, part.usage);
    }
  }
}

const clients = {
  "openai-node": openaiPlain,
  "openai-node-helper": openaiHelper,
  "anthropic-node": anthropicPlain,
  "anthropic-node-helper": anthropicHelper,
  "vercel-openai": (ask, out) => vercel("openai", ask, out),
  "vercel-anthropic": (ask, out) => vercel("anthropic", ask, out),
};

async function answer({ client, ask }) {
  const out = fresh();
  if (client in loops) {
    const loop = { text: "", usages: [], cities: [] };
    await loops[client](ask, loop);
    return loop;
  }
  try {
    await clients[client](ask, out);
  } catch (error) {
    if (!out.left) return failed(out, error ?? new Error("nothing was thrown"));
    if (!/abort/i.test(names(error).join())) return failed(out, error);
  }
  return out;
}

console.log(JSON.stringify({ ready: process.version }));
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  answer(request).then(
    (outcome) => console.log(JSON.stringify({ id: request.id, outcome })),
    (error) => console.log(JSON.stringify({ id: request.id, error: `${error.name}: ${error.message}` })),
  );
}
