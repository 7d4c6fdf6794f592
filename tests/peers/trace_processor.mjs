// What Perfetto's trace processor says of a trace: the rows of each query, as JSON.
//
//   node trace_processor.mjs FOLDER TRACE QUERY ...     FOLDER: with the engine, as tools/peers puts it
//
// The engine is written for a worker of a browser: what it asks of one is made here. Numbers of 64 bits stay whole.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { pathToFileURL } from "node:url";
import { MessageChannel } from "node:worker_threads";

const [folder, trace, ...queries] = process.argv.slice(2);
const glue = `${folder}/engine_bundle.node.js`;
console.log = console.warn = console.error; // standard output is for the rows

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: pathToFileURL(glue).href };
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = readFileSync(`${folder}/trace_processor.wasm`);
  }
};
runInThisContext(readFileSync(glue, "utf8"));
const { EngineBase } = await import(pathToFileURL(`${folder}/engine.mjs`).href);

const { port1, port2 } = new MessageChannel();
class Engine extends EngineBase {
  mode = "WASM";
  id = "test";
  rpcSendRequestBytes(bytes) {
    port2.postMessage(bytes);
  }
}
const engine = new Engine();
port2.onmessage = (message) => engine.onRpcResponseBytes(message.data);
await new Promise((done) => setImmediate(done)); // the engine is ready after what is waiting now
globalThis.self.onmessage({ data: port1 });

const bytes = new Uint8Array(readFileSync(trace));
const piece = 1 << 25;
for (let at = 0; at < bytes.length; at += piece) await engine.parse(bytes.slice(at, at + piece));
await engine.notifyEof();

const cell = (value) => (typeof value === "bigint" ? `${value}` : JSON.stringify(value));
const found = [];
for (const query of queries) {
  const result = await engine.query(query);
  const rows = [];
  const columns = result.columns();
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(`[${columns.map((name) => cell(row.get(name))).join(",")}]`);
  }
  found.push(`[${rows.join(",")}]`);
}
process.stdout.write(`[${found.join(",")}]\n`, () => process.exit(0));
