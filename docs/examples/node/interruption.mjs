// A provider that breaks off throws; what was said so far is not an answer.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.ANOMAN_BASE_URL ?? "http://127.0.0.1:8080"}/v1`,
  apiKey: process.env.ANOMAN_API_KEY ?? "anm-sk-demo",
});

let collected = "";
try {
  const stream = await client.chat.completions.create({
    model: "demo-broken",
    messages: [{ role: "user", content: "Tell me a short story" }],
    stream: true,
  });
  for await (const chunk of stream) collected += chunk.choices[0]?.delta?.content ?? "";
} catch (error) {
  if (error.code !== "stream_interrupted") throw error;
  const { failure_class, completion_tokens } = error.error._anoman;
  console.log(`${error.code} - ${failure_class} after ${completion_tokens} tokens`);
  collected = "";
}
