// The official @anthropic-ai/sdk.
import Anthropic, { APIUserAbortError, BadRequestError, NotFoundError } from "@anthropic-ai/sdk";
import { HELLO, equal, key, run, thrown, url } from "./cases.mjs";

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, timeout: 60_000 });
const ask = (text, tag, more) => ({ model: "claude", max_tokens: 256, messages: [{ role: "user", content: `${text} ${tag}` }], ...more });
const tools = [{ name: "get_weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
const text = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");

await run("anthropic", {
  async messages(tag) {
    const m = await client.messages.create(ask("Hello", tag));
    equal(text(m), HELLO, "text");
    equal(m.usage.output_tokens, 17, "tokens");
  },
  async stream(tag) {
    const types = [];
    let got = "";
    for await (const e of await client.messages.create(ask("Hello", tag, { stream: true }))) {
      types.push(e.type);
      if (e.type === "content_block_delta") got += e.delta.text;
    }
    equal(got, HELLO, "text");
    equal(`${types[0]} ${types.at(-1)}`, "message_start message_stop", "events");
  },
  async tools(tag) {
    const first = ask("say:tools", tag, { tools });
    const m = await client.messages.stream(first).finalMessage();
    const use = m.content.find((b) => b.type === "tool_use");
    equal(use?.input?.city, "Paris", "argument");
    const second = await client.messages.create({
      ...first, messages: [...first.messages, { role: "assistant", content: m.content }, { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "21" }] }],
    });
    equal(text(second), "It is 21 C in Paris.", "text");
  },
  async "count tokens"(tag) {
    const { model, messages } = ask("one two three", tag);
    equal((await client.messages.countTokens({ model, messages })).input_tokens, 9, "tokens");
  },
  async abort(tag, result) {
    result.aborts = true;
    const e = await thrown(async () => {
      const stream = await client.messages.create(ask("say:long", tag, { stream: true }));
      let deltas = 0;
      for await (const e of stream) if (e.type === "content_block_delta" && ++deltas === 3) stream.controller.abort();
      if (deltas < 20) throw new APIUserAbortError();
    });
    equal(e instanceof APIUserAbortError, true, `${e}`);
  },
  async "a fault of the caller"(tag) {
    const e = await thrown(() => client.messages.create(ask("say:400", tag)));
    equal(e instanceof BadRequestError && e.error.type, "error", `${e}`);
  },
  async "an unknown model"() {
    const e = await thrown(() => client.messages.create(ask("Hello", "", { model: "nothing" })));
    equal(e instanceof NotFoundError && e.error.error.type, "not_found_error", `${e}`);
  },
});
