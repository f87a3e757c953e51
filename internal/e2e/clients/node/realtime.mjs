// A session of the official openai client, over the WebSocket of Node.js.
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { HELLO, equal, key, run, url } from "./cases.mjs";

await run("realtime", {
  async "a turn"(tag) {
    const session = new OpenAIRealtimeWebSocket({ model: "gpt-4o" }, new OpenAI({ baseURL: `${url}/v1`, apiKey: key, organization: "org-of-the-caller" }));
    let text = "";
    const closed = new Promise((done) => { session.socket.addEventListener("close", done); });
    await new Promise((done, fail) => {
      session.on("error", fail);
      session.on("response.output_text.delta", (event) => { text += event.delta; });
      session.on("response.done", done);
      session.socket.addEventListener("open", () => {
        session.send({ type: "conversation.item.create", item: { type: "message", role: "user", content: [{ type: "input_text", text: `Hello ${tag}` }] } });
        session.send({ type: "response.create" });
      });
    });
    session.close({ code: 1000, reason: "bye" });
    equal((await closed).code, 1000, "code");
    equal(text, HELLO, "text");
  },
});
