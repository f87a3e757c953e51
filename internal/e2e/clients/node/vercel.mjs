// The Vercel AI SDK with its providers.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { HELLO, equal, key, run, url } from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const models = {
  chat: openai.chat("gpt-4o"),
  responses: openai.responses("gpt-4o"),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: key })("claude"),
  gemini: createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: key })("gemini"),
};
const tools = { get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: ({ city }) => `21 in ${city}` }) };

const cases = {
  async embeddings(tag) {
    const r = await embedMany({ model: openai.embedding("text-embedding-3-small"), values: ["a", `b ${tag}`], maxRetries: 0 });
    equal(r.embeddings.length, 2, "vectors");
  },
  async tools(tag) {
    const r = await generateText({ model: models.chat, prompt: `say:tools ${tag}`, tools, stopWhen: stepCountIs(3), maxRetries: 0 });
    equal(r.text, "It is 21 C in Paris.", "text");
  },
};
for (const [name, model] of Object.entries(models)) {
  cases[name] = async (tag) => {
    const r = await generateText({ model, prompt: `Hello ${tag}`, maxOutputTokens: 64, maxRetries: 0 });
    equal(r.text, HELLO, "text");
    equal(r.usage.outputTokens, 17, "tokens");
  };
  cases[`${name} stream`] = async (tag) => {
    let text = "", fault;
    const r = streamText({ model, prompt: `Hello ${tag}`, maxOutputTokens: 64, maxRetries: 0, onError: ({ error }) => { fault = error; } });
    for await (const delta of r.textStream) text += delta;
    if (fault) throw fault;
    equal(text, HELLO, "text");
  };
}
await run("vercel", cases);
