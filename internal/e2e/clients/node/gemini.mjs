// The official @google/genai.
import { ApiError, GoogleGenAI } from "@google/genai";
import { HELLO, equal, key, run, thrown, url } from "./cases.mjs";

const v1 = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url, timeout: 60_000 } });
const client = new GoogleGenAI({ apiKey: key, apiVersion: "v1beta", httpOptions: { baseUrl: url, timeout: 60_000 } });
const model = "gemini";
const once = { httpOptions: { retryOptions: { attempts: 1 } } };

await run("gemini", {
  async generate(tag) {
    const r = await client.models.generateContent({ model, contents: `Hello ${tag}` });
    equal(r.text, HELLO, "text");
    equal(r.usageMetadata?.totalTokenCount, 28, "tokens");
  },
  async "generate in v1"(tag) {
    equal((await v1.models.generateContent({ model, contents: `Hello ${tag}` })).text, HELLO, "text");
  },
  async stream(tag) {
    let text = "";
    for await (const chunk of await client.models.generateContentStream({ model, contents: `Hello ${tag}` })) text += chunk.text ?? "";
    equal(text, HELLO, "text");
  },
  async tools(tag) {
    const functionDeclarations = [{ name: "get_weather", parametersJsonSchema: { type: "object", properties: { city: { type: "string" } } } }];
    const r = await client.models.generateContent({ model, contents: `say:tools ${tag}`, config: { tools: [{ functionDeclarations }] } });
    equal(r.functionCalls?.[0]?.args.city, "Paris", "argument");
  },
  async embeddings(tag) {
    const r = await client.models.embedContent({ model, contents: [`one ${tag}`, "two"] });
    equal(r.embeddings.length, 2, "vectors");
  },
  async "count tokens"(tag) {
    equal((await client.models.countTokens({ model, contents: `one two three ${tag}` })).totalTokens, 10, "tokens");
  },
  async abort(tag, result) {
    result.aborts = true;
    const abort = new AbortController();
    let chunks = 0;
    await thrown(async () => {
      for await (const _ of await client.models.generateContentStream({ model, contents: `say:long ${tag}`, config: { abortSignal: abort.signal } })) if (++chunks === 3) abort.abort();
      throw new Error("the stream ended");
    });
    equal(chunks < 20, true, "chunks");
  },
  async "a fault of the caller"(tag) {
    const e = await thrown(() => client.models.generateContent({ model, contents: `say:400 ${tag}`, config: once }));
    equal(e instanceof ApiError && e.status, 400, `${e}`);
  },
});
