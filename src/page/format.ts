// Values as people read them, as opspan's tables on a terminal have them.

export type Unit =
  | "name"
  | "text"
  | "count"
  | "ns"
  | "bytes"
  | "share"
  | "signed ns"
  | "signed share"
  | "number"
  | "flop_rate"
  | "rate"
  | "flag";

export const isNumber = (unit: Unit): boolean => unit !== "name" && unit !== "text" && unit !== "flag";

export function formatted(value: unknown, unit: Unit): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "";
  if (typeof value !== "number") return String(value);
  switch (unit) {
    case "ns":
      return time(value);
    case "bytes":
      return bytes(value);
    case "share":
      return `${(value * 100).toFixed(1)}%`;
    case "signed ns":
      return signed(value, time);
    case "signed share":
      return signed(value, (share) => `${(share * 100).toFixed(1)}%`);
    case "count":
      return Math.round(value).toLocaleString("en");
    case "flop_rate":
      return `${scaled(value, "FLOP", 1000)}/s`;
    case "rate":
      return `${scaled(value, "B", 1000)}/s`;
    default:
      return value.toLocaleString("en", { maximumFractionDigits: 3 });
  }
}

/** The largest first. */
export const TIME_UNITS: [unit: string, ns: number][] = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** The largest of which it is at least one. */
export const timeUnit = (ns: number): [unit: string, ns: number] =>
  TIME_UNITS.find(([, size]) => Math.abs(ns) >= size) ?? TIME_UNITS.at(-1)!;

export function time(ns: number): string {
  const [unit, size] = timeUnit(ns);
  return `${size === 1 ? Math.round(ns) : (ns / size).toFixed(3)} ${unit}`;
}

/** With a sign, unless it is too small to be seen. */
export function signed(value: number, format: (value: number) => string): string {
  const text = format(Math.abs(value));
  return text === format(0) ? text : `${value > 0 ? "+" : "−"}${text}`;
}

/** The begin of a text that opspan shortened; nothing of a text that is whole. */
export const beginOf = (text: string): string | undefined => /^(.*)\.\.\. \([\d,]+ characters more\)$/s.exec(text)?.[1];

export function bytes(count: number): string {
  return scaled(count, "B", 1024);
}

function scaled(value: number, unit: string, base: number): string {
  const prefixes = base === 1024 ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  let rest = value;
  while (Math.abs(rest) >= base && step < prefixes.length - 1) {
    rest /= base;
    step += 1;
  }
  return `${step ? rest.toFixed(2) : rest.toLocaleString("en", { maximumFractionDigits: 2 })} ${prefixes[step]}${unit}`;
}
