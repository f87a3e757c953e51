// The official openai client.
import OpenAI, { APIUserAbortError, BadRequestError, RateLimitError, toFile } from "openai";
import { HELLO, equal, key, run, thrown, url } from "./cases.mjs";

const model = "gpt-4o";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
const ask = (text, tag) => [{ role: "user", content: `${text} ${tag}` }];

const png = () => toFile(Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64"), "in.png", { type: "image/png" });
const sound = (size) => toFile(Buffer.alloc(size, "RIFF"), "a.wav", { type: "audio/wav" });

await run("openai", {
  async chat(tag) {
    const r = await client.chat.completions.create({ model, messages: ask("Hello", tag) });
    equal(r.choices[0].message.content, HELLO, "text");
    equal(r.usage.total_tokens, 28, "tokens");
  },
  async "chat stream"(tag) {
    let text = "", usage;
    const stream = await client.chat.completions.create({ model, messages: ask("Hello", tag), stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    equal(text, HELLO, "text");
    equal(usage?.total_tokens, 28, "tokens");
  },
  async "chat stream without usage"(tag, result) { // for which Usher asks in the caller's place
    result.rewritten = true;
    let last;
    for await (const chunk of await client.chat.completions.create({ model, messages: ask("Hello", tag), stream: true })) {
      equal(chunk.choices.length, 1, "choices");
      last = chunk;
    }
    equal(last.choices[0].finish_reason, "stop", "end");
  },
  async tools(tag) {
    const messages = ask("say:tools", tag);
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    const first = await client.chat.completions.create({ model, messages, tools });
    const [tool] = first.choices[0].message.tool_calls;
    equal(JSON.parse(tool.function.arguments).city, "Paris", "argument");
    const second = await client.chat.completions.create({
      model, tools, messages: [...messages, first.choices[0].message, { role: "tool", tool_call_id: tool.id, content: "21" }],
    });
    equal(second.choices[0].message.content, "It is 21 C in Paris.", "text");
  },
  async embeddings(tag) {
    const r = await client.embeddings.create({ model: "text-embedding-3-small", input: ["one", `two ${tag}`] });
    equal(r.data.length, 2, "vectors");
    equal(r.data.every((d) => d.embedding.every(Number.isFinite)), true, "all are numbers");
  },
  async responses(tag) {
    const r = await client.responses.create({ model, input: `Hello ${tag}` });
    equal(r.output_text, HELLO, "text");
  },
  async "responses stream"(tag) {
    let text = "", last;
    for await (const event of await client.responses.create({ model, input: `Hello ${tag}`, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event.type;
    }
    equal(text, HELLO, "text");
    equal(last, "response.completed", "last event");
  },
  async moderations(tag) {
    const r = await client.moderations.create({ model: "omni-moderation", input: `Hello ${tag}` });
    equal(r.results.length, 1, "results");
  },
  async "edit of images"(tag) {
    const r = await client.images.edit({ model: "gpt-image-1", prompt: `join ${tag}`, image: [await png(), await png()] });
    equal(r.data.length, 1, "pictures");
  },
  async transcription(tag) { // the model has another name at the provider
    const r = await client.audio.transcriptions.create({ model: "dictation", file: await sound(3 << 20), prompt: tag });
    equal(r.text, "the words of the upstream", "text");
  },
  async translation(tag) {
    const r = await client.audio.translations.create({ model: "whisper-1", file: await sound(100), prompt: tag });
    equal(r.text, "the words in English", "text");
  },
  async speech(tag) {
    const r = await client.audio.speech.create({ model: "tts-1", voice: "alloy", input: `Hello ${tag}` });
    equal(Buffer.from(await r.arrayBuffer()).toString(), "RIFF of the upstream", "bytes");
  },
  async "files and batches"(tag) {
    const content = Buffer.from(`${tag}\n\u0000\u00ff`.repeat(100));
    const file = await client.files.create({ purpose: "batch", file: await toFile(content, "in.jsonl", { type: "application/octet-stream" }) });
    equal((await client.files.retrieve(file.id)).id, file.id, "file");
    const back = Buffer.from(await (await client.files.content(file.id)).arrayBuffer());
    equal(back.equals(content), true, "the same bytes");
    const batch = await client.batches.create({ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h", metadata: { tag } });
    equal((await client.batches.retrieve(batch.id)).id, batch.id, "batch");
    equal((await client.files.delete(file.id)).deleted, true, "deleted");
  },
  async abort(tag, result) {
    result.aborts = true;
    const e = await thrown(async () => {
      const stream = await client.chat.completions.create({ model, messages: ask("say:long", tag), stream: true, stream_options: { include_usage: true } });
      let chunks = 0;
      for await (const _ of stream) if (++chunks === 3) stream.controller.abort();
      if (chunks < 20) throw new APIUserAbortError();
    });
    equal(e instanceof APIUserAbortError, true, `${e}`);
  },
  async "a fault of the caller"(tag) {
    const e = await thrown(() => client.chat.completions.create({ model, messages: ask("say:400", tag) }));
    equal(e instanceof BadRequestError && e.code, "bad_thing", `${e}`);
  },
  async "a limit"(tag) {
    const e = await thrown(() => client.chat.completions.create({ model: "limited", messages: ask("say:429", tag) }));
    equal(e instanceof RateLimitError && e.code, "rate_limit_exceeded", `${e}`);
    equal(Number(e.headers.get("retry-after")) > 0, true, "Retry-After");
  },
});
