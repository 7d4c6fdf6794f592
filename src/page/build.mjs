// Bundles the page: node build.mjs OUT writes page.js and .css, tensorboard.js and .css, and LICENSES.txt into OUT.
// `npm ci` must have installed the libraries of package-lock.json before.
import { build } from "esbuild";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, sep } from "node:path";

const out = process.argv[2] ?? "built";
const shared = {
  outdir: out,
  bundle: true,
  minify: true,
  charset: "utf8",
  target: ["chrome110", "firefox113", "safari16.4"], // the oldest that have DecompressionStream
  legalComments: "none", // they are in LICENSES.txt
  loader: { ".css": "css" },
  metafile: true,
  logLevel: "warning",
};
const result = await build({ ...shared, entryPoints: { page: "report.ts" }, format: "iife" });
await build({ ...shared, entryPoints: ["tensorboard.ts"], format: "esm" }); // a module, because TensorBoard imports it

// Collects the licences of all packages that are in the bundle, in whole or in part.
const packages = new Set(
  Object.keys(result.metafile.inputs)
    .filter((path) => path.includes("node_modules"))
    .map(root),
);
const licences = [...packages].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((path) => /^licen[cs]e/i.test(path));
  if (!file) throw new Error(`${name} ${version} has no file with its licence`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
writeFileSync(join(out, "LICENSES.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));

function root(path) {
  const parts = dirname(path).split(/[/\\]/);
  const at = parts.lastIndexOf("node_modules");
  return parts.slice(0, at + (parts[at + 1].startsWith("@") ? 3 : 2)).join(sep);
}
