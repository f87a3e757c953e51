// What a gateway does between a client and a provider, and the client must not
// notice: each case runs with all SDKs, streamed and whole.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { GoogleGenAI } from "@google/genai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { HELLO, equal, key, run, url } from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const timeout = 60_000;
const openai = (maxRetries) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries, timeout });
const anthropic = (maxRetries) => new Anthropic({ baseURL: url, apiKey: key, maxRetries, timeout });
const gemini = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url, timeout } });
const vercel = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const messages = (content) => [{ role: "user", content }];

/** Joins what fn makes of the parts of a stream. */
async function join(stream, fn) {
  let text = "";
  for await (const part of await stream) text += fn(part) ?? "";
  return text;
}

// A client asks a model for an answer to a text, as a stream or as a whole.
const clients = {
  async openai(model, text, stream, retries = 0) {
    const params = { model, messages: messages(text), ...(stream && { stream, stream_options: { include_usage: true } }) };
    const answer = openai(retries).chat.completions.create(params);
    return stream ? join(answer, (c) => c.choices[0]?.delta?.content) : (await answer).choices[0].message.content;
  },
  async responses(model, text, stream) {
    const answer = openai(0).responses.create({ model, input: text, stream });
    return stream ? join(answer, (e) => (e.type === "response.output_text.delta" ? e.delta : "")) : (await answer).output_text;
  },
  async anthropic(model, text, stream, retries = 0) {
    const answer = anthropic(retries).messages.create({ model, max_tokens: 256, messages: messages(text), stream });
    return stream ? join(answer, (e) => e.delta?.text) : (await answer).content[0].text;
  },
  async gemini(model, contents, stream) {
    if (!stream) return (await gemini.models.generateContent({ model, contents })).text;
    return join(gemini.models.generateContentStream({ model, contents }), (c) => c.text);
  },
  async vercel(name, prompt, stream) {
    const model = vercel.chat(name);
    if (!stream) return (await generateText({ model, prompt, maxRetries: 0 })).text;
    let fault;
    const text = await join(streamText({ model, prompt, maxRetries: 0, onError: ({ error }) => { fault = error; } }).textStream, (t) => t);
    if (fault) throw fault;
    return text;
  },
};

const cases = {};
for (const [name, ask] of Object.entries(clients)) {
  for (const stream of [true, false]) {
    const has = (what, test) => { cases[`${name}, ${what}${stream ? ", streamed" : ""}`] = test; };
    has("in line", async (tag) => { // with heartbeats, while it waits and between the events
      const texts = await Promise.all([1, 2, 3].map(() => ask("narrow", `say:slow ${tag}`, stream)));
      equal(texts.join(), [HELLO, HELLO, HELLO].join(), "texts");
    });
    has("to a larger window", async (tag) => equal(await ask("window", `Hello ${tag}`, stream), HELLO, "text"));
    has("to another model", async (tag) => equal(await ask("fallen", `Hello ${tag}`, stream), HELLO, "text"));
  }
}
for (const name of ["openai", "anthropic"]) { // their own retry obeys Retry-After
  cases[`${name}, again`] = async (tag) => equal(await clients[name](`once-${name}`, `Hello ${tag}`, false, 1), HELLO, "text");
}
await run("gateway", cases);
