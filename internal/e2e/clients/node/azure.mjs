// The class AzureOpenAI of the official openai client, which has paths and a
// header of its own, at a provider that is OpenAI's and at one that is Azure's.
import { AzureOpenAI, NotFoundError, toFile } from "openai";
import { HELLO, equal, key, run, thrown, url } from "./cases.mjs";

const client = new AzureOpenAI({ endpoint: url, apiKey: key, apiVersion: "2025-04-01-preview", maxRetries: 0, timeout: 60_000 });
const ask = (model, tag, more) => ({ model, messages: [{ role: "user", content: `Hello ${tag}` }], ...more });

const cases = {};
for (const [of, model] of [["OpenAI", "gpt-4o"], ["Azure", "azure-gpt"]]) {
  const at = (name, test) => { cases[`${name} at ${of}`] = test; };
  at("chat", async (tag) => {
    const r = await client.chat.completions.create(ask(model, tag));
    equal(r.choices[0].message.content, HELLO, "text");
  });
  at("a stream", async (tag) => {
    let text = "";
    for await (const chunk of await client.chat.completions.create(ask(model, tag, { stream: true, stream_options: { include_usage: true } }))) text += chunk.choices[0]?.delta?.content ?? "";
    equal(text, HELLO, "text");
  });
  at("responses", async (tag) => {
    const r = await client.responses.create({ model, input: `Hello ${tag}` });
    equal(r.output_text, HELLO, "text");
  });
  at("embeddings", async (tag) => {
    const r = await client.embeddings.create({ model: of === "Azure" ? "azure-embeddings" : "text-embedding-3-small", input: ["one", `two ${tag}`] });
    equal(r.data.length, 2, "vectors");
  });
  at("transcription", async (tag) => {
    const file = await toFile(Buffer.alloc(1000, "RIFF"), "a.wav", { type: "audio/wav" });
    const r = await client.audio.transcriptions.create({ model: of === "Azure" ? "azure-whisper" : "whisper-1", file, prompt: tag });
    equal(r.text, "the words of the upstream", "text");
  });
}
cases["an unknown deployment"] = async (tag) => {
  const e = await thrown(() => client.chat.completions.create(ask("nothing", tag)));
  equal(e instanceof NotFoundError && e.code, "model_not_found", `${e}`);
};
await run("azure", cases);
