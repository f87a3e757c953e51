// Runs the cases of a client one after the other, and prints for each one line
// of JSON:
//
//   {"name", "tag", "sent": [sha256 of each body that was sent, "" if that is a form], "rewritten", "aborts", "error"}
//
// A case puts the tag into what it sends, so that it is found at the provider. It
// says whether its bodies are to be rewritten on the way, and whether it leaves
// before the end of an answer.
import { createHash, randomBytes } from "node:crypto";

export const url = process.env.E2E_URL;
export const key = process.env.E2E_KEY;
export const HELLO = "Hello from the upstream.";

export function equal(got, want, what) {
  if (got !== want) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

/** Returns what fn throws. */
export async function thrown(fn) {
  try {
    await fn();
  } catch (e) {
    return e;
  }
  throw new Error("nothing was thrown");
}

let current;
const send = globalThis.fetch;
globalThis.fetch = (to, init) => { // only to know what was sent
  const body = init?.body;
  if (body) {
    const text = typeof body === "string" || body instanceof Uint8Array;
    current.sent.push(text ? createHash("sha256").update(body).digest("hex") : "");
  }
  return send(to, init);
};

export async function run(client, cases) {
  for (const [name, test] of Object.entries(cases)) {
    const id = `${client}-${randomBytes(6).toString("hex")}`;
    current = { name, tag: id, sent: [] };
    try {
      await test(`#tag=${id}`, current);
    } catch (e) {
      current.error = `${e.name}: ${e.message}${e.cause ? ` (${e.cause})` : ""}`;
    }
    console.log(JSON.stringify(current));
  }
}
