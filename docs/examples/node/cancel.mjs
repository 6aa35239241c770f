// Leave a stream after a second.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.ANOMAN_BASE_URL ?? "http://127.0.0.1:8080"}/v1`,
  apiKey: process.env.ANOMAN_API_KEY ?? "anm-sk-demo",
});
const controller = new AbortController();

setTimeout(() => controller.abort(), 1000);

try {
  const stream = await client.chat.completions.create(
    {
      model: "demo-long",
      messages: [{ role: "user", content: "Write a long essay" }],
      stream: true,
    },
    { signal: controller.signal },
  );
  for await (const chunk of stream) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
  }
} catch (error) {
  if (error.name !== "AbortError") throw error;
}
// The SDK ends the loop when the signal says so; it does not throw.
console.log(controller.signal.aborted ? "\n[cancelled]" : "");
