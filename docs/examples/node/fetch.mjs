// Without an SDK: a parser for the frames that the gateway writes, and only those.
async function main() {
  const response = await fetch(`${process.env.ANOMAN_BASE_URL ?? "http://127.0.0.1:8080"}/v1/chat/completions`, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${process.env.ANOMAN_API_KEY ?? "anm-sk-demo"}`,
      "Content-Type": "application/json",
    },
    body: JSON.stringify({
      model: process.argv[2] ?? "demo-story",
      messages: [{ role: "user", content: "Tell me a short story" }],
      stream: true,
    }),
  });
  if (!response.ok || !response.body) {
    throw new Error(`HTTP ${response.status}`);
  }

  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let buffer = "";

  while (true) {
    const { done, value } = await reader.read();
    if (done) break;
    buffer += decoder.decode(value, { stream: true });

    const lines = buffer.split("\n");
    buffer = lines.pop() ?? "";

    for (const line of lines) {
      if (!line.startsWith("data: ")) continue; // blank lines and pings
      const payload = line.slice(6).trim();
      if (payload === "[DONE]") return;
      const parsed = JSON.parse(payload);
      if (parsed.error) {
        throw new Error(parsed.error.message);
      }
      const delta = parsed.choices?.[0]?.delta?.content;
      if (delta) process.stdout.write(delta);
    }
  }
  throw new Error("the stream ended without its terminator");
}

await main();
