// The same by the Anthropic endpoint.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: `${process.env.ANOMAN_BASE_URL ?? "http://127.0.0.1:8080"}/anthropic`,
  apiKey: process.env.ANOMAN_API_KEY ?? "anm-sk-demo",
});

const stream = client.messages.stream({
  model: "demo-story",
  max_tokens: 1024,
  messages: [{ role: "user", content: "Tell me a short story" }],
});
stream.on("text", (text) => process.stdout.write(text));

const message = await stream.finalMessage();
console.log();
console.log(message.usage.output_tokens, "tokens");
