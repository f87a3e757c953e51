// Starts @copilotkit/aimock, a mock provider that was not written here, with
// the answers that the end-to-end tests expect, and a second port that tells
// what reached it:
//
//   GET /wire?tag=T   the requests whose body has "#tag=T", in order of arrival:
//                     [{url, headers, bodySHA256, status, finished, done}]
//
// It prints one line of JSON, {"url", "wire"}, once it serves.
import { createHash } from "node:crypto";
import http from "node:http";
import { createServer } from "@copilotkit/aimock";

const HELLO = "Hello from the upstream.";
const USAGE = {
  prompt_tokens: 11, completion_tokens: 17, total_tokens: 28, input_tokens: 11, output_tokens: 17,
  promptTokenCount: 11, candidatesTokenCount: 17, totalTokenCount: 28,
};
const call = { name: "get_weather", arguments: JSON.stringify({ city: "Paris" }), id: "call_1" };
const fault = (status, type, code, more) => ({ error: { message: "told by the upstream", type, code, param: null }, status, ...more });
const long = "A long answer in many pieces. ".repeat(100);

const tooLong = "prompt is too long: 300 tokens > 100 maximum; it exceeds the maximum number of tokens";

const fixtures = [
  { match: { model: "small" }, response: { error: { message: tooLong, type: "invalid_request_error", code: "context_length_exceeded" }, status: 400 } },
  { match: { model: "broken" }, response: fault(503, "server_error", "") },
  ...["openai", "anthropic", "go", "anthropic-go"].map((name) => (
    { match: { model: `once-${name}`, sequenceIndex: 0 }, response: fault(429, "rate_limit_error", "rate_limit_exceeded", { retryAfter: 1 }) }
  )),
  { match: { userMessage: "say:slow" }, response: { content: HELLO, usage: USAGE }, streamingProfile: { ttft: 300, tps: 12 } },
  { match: { endpoint: "image" }, response: { images: [{ b64Json: "AA==" }] } },
  { match: { endpoint: "transcription" }, response: { transcription: { text: "the words of the upstream" } } },
  { match: { endpoint: "translation" }, response: { transcription: { text: "the words in English" } } },
  { match: { endpoint: "speech" }, response: { audio: Buffer.from("RIFF of the upstream").toString("base64"), format: "mp3" } },
  { match: { userMessage: "say:tools", hasToolResult: false }, response: { toolCalls: [call], usage: USAGE } },
  { match: { userMessage: "say:tools", hasToolResult: true }, response: { content: "It is 21 C in Paris.", usage: USAGE } },
  { match: { userMessage: "say:long" }, response: { content: long, usage: USAGE }, streamingProfile: { ttft: 10, tps: 20 } },
  { match: { userMessage: "say:400" }, response: fault(400, "invalid_request_error", "bad_thing") },
  { match: { userMessage: "say:429" }, response: fault(429, "rate_limit_error", "rate_limit_exceeded", { retryAfter: 7 }) },
  { match: { predicate: (r) => [undefined, "chat", "realtime"].includes(r._endpointType) }, response: { content: HELLO, usage: USAGE } },
];

// What aimock does not have is answered here.
const words = (body, field) => JSON.stringify(JSON.parse(body)[field]).match(/\w+/g).length;
const missing = {
  "/v1/messages/count_tokens": (body) => ({ input_tokens: words(body, "messages") }),
  ":countTokens": (body) => ({ totalTokens: words(body, "contents") }),
  ":batchEmbedContents": (body) => ({ embeddings: JSON.parse(body).requests.map(() => ({ values: [0.5, 0.25] })) }),
};

const mock = await createServer(fixtures, { port: 0, host: "127.0.0.1", logLevel: "silent", chunkSize: 6 });

const wire = [];
const emit = mock.server.emit.bind(mock.server);
mock.server.emit = (event, ...args) => {
  if (event !== "request") return emit(event, ...args);
  const [req, res] = args;
  watch(req, res);
  req.url = req.url.replace(/^\/v1(\/models\/[^/?]+:)/, "/v1beta$1"); // it has no Gemini in v1
  const path = Object.keys(missing).find((path) => req.url.split("?")[0].endsWith(path));
  if (!path) return emit(event, ...args);
  let body = "";
  req.on("data", (chunk) => { body += chunk; });
  req.on("end", () => res.setHeader("content-type", "application/json").end(JSON.stringify(missing[path](body))));
  return true;
};

/** Records a request: aimock itself must not notice, so its body is read as it passes. */
function watch(req, res) {
  const record = { url: req.url, headers: { ...req.headers }, done: false };
  const parts = [];
  wire.push(record);
  const push = req.push.bind(req);
  req.push = (chunk, ...rest) => {
    if (chunk) parts.push(chunk);
    else {
      const body = Buffer.concat(parts);
      record.bodySHA256 = createHash("sha256").update(body).digest("hex");
      record.tag = /#tag=([\w.-]+)/.exec(body.toString())?.[1];
    }
    return push(chunk, ...rest);
  };
  res.on("close", () => Object.assign(record, { status: res.statusCode, finished: res.writableFinished, done: true }));
}

const admin = http.createServer((req, res) => {
  const tag = new URL(req.url, "http://localhost").searchParams.get("tag");
  res.setHeader("content-type", "application/json");
  res.end(JSON.stringify(wire.filter((r) => r.tag === tag)));
});
admin.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ url: mock.url, wire: `http://127.0.0.1:${admin.address().port}` }));
});
