// The answer, as it is made.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.ANOMAN_BASE_URL ?? "http://127.0.0.1:8080"}/v1`,
  apiKey: process.env.ANOMAN_API_KEY ?? "anm-sk-demo",
});

const stream = await client.chat.completions.create({
  model: "demo-story",
  messages: [{ role: "user", content: "Tell me a short story" }],
  stream: true,
});

for await (const chunk of stream) {
  const delta = chunk.choices[0]?.delta?.content ?? "";
  process.stdout.write(delta);
}
console.log();
