// Turns functions as a trace names them, "train.py(12): forward", into addresses that open the line in an editor.

interface Line {
  file: string;
  line: number;
  name: string; // of the function
}

const FUNCTION = /^(.+)\((\d+)\): (.*)$/s;
const ABSOLUTE = /^(?:\/(?!\/)|[A-Za-z]:[\\/](?![\\/]))/; // a second slash would name another machine

/** Returns the place of the function, or undefined if it is in no file, such as a built-in function. */
export function lineOf(frame: string): Line | undefined {
  const match = FUNCTION.exec(frame);
  return match ? { file: match[1]!, line: Number(match[2]), name: match[3]! } : undefined;
}

/** Returns the address that opens a line, or undefined if the path of its file is not absolute. The user chose `pattern`,
 * but the path comes from the trace: each part of it is escaped, so that it cannot become anything else than a path. */
export function addressOf(at: Line, pattern: string): string | undefined {
  if (!ABSOLUTE.test(at.file)) return undefined;
  const drive = /^[A-Za-z]:/.exec(at.file)?.[0] ?? "";
  const parts = at.file.slice(drive.length).split(drive ? /[\\/]/ : "/");
  const path = drive + parts.map(encodeURIComponent).join("/");
  return pattern.replaceAll("{file}", () => path).replaceAll("{line}", () => String(at.line));
}
