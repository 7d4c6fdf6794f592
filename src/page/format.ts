// Formats values as text: times, bytes, counts, shares and rates.

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
  | "flop" // a large number that counts something
  | "flop_rate"
  | "rate"
  | "flag";

export const isNumber = (unit: Unit): boolean => unit !== "name" && unit !== "text" && unit !== "flag";

export function formatValue(value: unknown, unit: Unit): string {
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
      return formatSigned(value, time);
    case "signed share":
      return formatSigned(value, (share) => `${(share * 100).toFixed(1)}%`);
    case "count":
      return Math.round(value).toLocaleString("en");
    case "flop_rate":
      return `${formatScaled(value, "FLOP", 1000)}/s`;
    case "rate":
      return `${formatScaled(value, "B", 1000)}/s`;
    default:
      return value.toLocaleString("en", { maximumFractionDigits: 3 });
  }
}

/** Units of time, the largest first. */
export const TIME_UNITS: [unit: string, ns: number][] = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** Returns the largest unit of time that is at most as long as `ns`. For less than a nanosecond, returns ns. */
export const timeUnit = (ns: number): [unit: string, ns: number] =>
  TIME_UNITS.find(([, size]) => Math.abs(ns) >= size) ?? TIME_UNITS.at(-1)!;

export function time(ns: number): string {
  const [unit, size] = timeUnit(ns);
  return `${size === 1 ? Math.round(ns) : (ns / size).toFixed(3)} ${unit}`;
}

/** Formats a value with its sign. If the value is rounded to 0, writes no sign. */
export function formatSigned(value: number, format: (value: number) => string): string {
  const text = format(Math.abs(value));
  return text === format(0) ? text : `${value > 0 ? "+" : "−"}${text}`;
}

/** Returns the part of a shortened text before "... (20 characters more)". Returns undefined if opspan did not shorten
 * the text. */
export const beginOf = (text: string): string | undefined => /^(.*)\.\.\. \([\d,]+ characters more\)$/s.exec(text)?.[1];

export function bytes(count: number): string {
  return formatScaled(count, "B", 1024);
}

function formatScaled(value: number, unit: string, base: number): string {
  const prefixes = base === 1024 ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  let rest = value;
  while (Math.abs(rest) >= base && step < prefixes.length - 1) {
    rest /= base;
    step += 1;
  }
  return `${step ? rest.toFixed(2) : rest.toLocaleString("en", { maximumFractionDigits: 2 })} ${prefixes[step]}${unit}`;
}
