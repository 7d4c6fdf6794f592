// Turns the name of a function in a trace, such as "train.py(12): forward", into an address that opens its line in an
// editor.

interface Line {
  file: string;
  line: number;
  name: string; // the name of the function
}

const FUNCTION = /^(.+)\((\d+)\): (.*)$/s;
const ABSOLUTE = /^(?:\/(?!\/)|[A-Za-z]:[\\/](?![\\/]))/; // excludes //HOST/FILE, which is on another machine

/** Returns the file, the line and the name of the function. Returns undefined for a function without a file, such as a
 * built-in function. */
export function lineOf(frame: string): Line | undefined {
  const match = FUNCTION.exec(frame);
  return match ? { file: match[1]!, line: Number(match[2]), name: match[3]! } : undefined;
}

/** Returns the address that opens a line, or undefined if the path of the file is not absolute. The user chose
 * `pattern`, but the path comes from the trace, which can be hostile. So each part of the path is escaped. */
export function addressOf(at: Line, pattern: string): string | undefined {
  if (!ABSOLUTE.test(at.file)) return undefined;
  const drive = /^[A-Za-z]:/.exec(at.file)?.[0] ?? "";
  const parts = at.file.slice(drive.length).split(drive ? /[\\/]/ : "/");
  const path = drive + parts.map(encodeURIComponent).join("/");
  return pattern.replaceAll("{file}", () => path).replaceAll("{line}", () => String(at.line));
}
