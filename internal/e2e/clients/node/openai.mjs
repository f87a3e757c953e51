// Runs the official openai client against E2E_URL with E2E_KEY, unmodified but
// for these two, and prints for each case one line of JSON:
//
//   {"name", "tag", "sent": [sha256 of each body that was sent], "error"}
import { createHash, randomBytes } from "node:crypto";
import OpenAI from "openai";

const HELLO = "Hello from the upstream.";
const model = "gpt-4o";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

function equal(got, want, what) {
  if (got !== want) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

const cases = {
  async chat(client, ask) {
    const r = await client.chat.completions.create({ model, messages: ask("Hello") });
    equal(r.choices[0].message.content, HELLO, "text");
    equal(r.usage.total_tokens, 28, "tokens");
  },
  async "chat stream"(client, ask) {
    let text = "", usage;
    const stream = await client.chat.completions.create({ model, messages: ask("Hello"), stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    equal(text, HELLO, "text");
    equal(usage?.total_tokens, 28, "tokens");
  },
  async tools(client, ask) {
    const messages = ask("say:tools");
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    const first = await client.chat.completions.create({ model, messages, tools });
    const [tool] = first.choices[0].message.tool_calls;
    equal(JSON.parse(tool.function.arguments).city, "Paris", "argument");
    const second = await client.chat.completions.create({
      model, tools, messages: [...messages, first.choices[0].message, { role: "tool", tool_call_id: tool.id, content: "21" }],
    });
    equal(second.choices[0].message.content, "It is 21 C in Paris.", "text");
  },
  async embeddings(client, _, tag) {
    const r = await client.embeddings.create({ model: "text-embedding-3-small", input: ["one", `two ${tag}`] });
    equal(r.data.length, 2, "vectors");
    equal(r.data.every((d) => d.embedding.every(Number.isFinite)), true, "all are numbers");
  },
  async responses(client, _, tag) {
    const r = await client.responses.create({ model, input: `Hello ${tag}` });
    equal(r.output_text, HELLO, "text");
  },
  async "responses stream"(client, _, tag) {
    let text = "", last;
    for await (const event of await client.responses.create({ model, input: `Hello ${tag}`, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event.type;
    }
    equal(text, HELLO, "text");
    equal(last, "response.completed", "last event");
  },
};

for (const [name, run] of Object.entries(cases)) {
  const tag = `node-${randomBytes(6).toString("hex")}`;
  const result = { name, tag, sent: [] };
  const client = new OpenAI({
    baseURL: `${process.env.E2E_URL}/v1`,
    apiKey: process.env.E2E_KEY,
    maxRetries: 0,
    timeout: 60_000,
    fetch(url, init) { // only to know what was sent
      result.sent.push(createHash("sha256").update(init.body).digest("hex"));
      return fetch(url, init);
    },
  });
  try {
    await run(client, (text) => [{ role: "user", content: `${text} #tag=${tag}` }], `#tag=${tag}`);
  } catch (e) {
    result.error = `${e.name}: ${e.message}${e.cause ? ` (${e.cause})` : ""}`;
  }
  console.log(JSON.stringify(result));
}
