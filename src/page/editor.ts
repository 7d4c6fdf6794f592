// Functions of Python as a trace has them, "train.py(12): forward", and the addresses that open their lines in an editor.

interface Line {
  file: string;
  line: number;
  called: string; // the function
}

const FUNCTION = /^(.+)\((\d+)\): (.*)$/s;
const ABSOLUTE = /^(?:\/(?!\/)|[A-Za-z]:[\\/](?![\\/]))/; // a second slash would name another machine

/** Where the function is; nothing for what is not written in a file, such as a built-in function. */
export function lineOf(frame: string): Line | undefined {
  const found = FUNCTION.exec(frame);
  return found ? { file: found[1]!, line: Number(found[2]), called: found[3]! } : undefined;
}

/** The address that opens a line, of a file whose whole path is known. `pattern` is the user's, the file is foreign:
 * each part of its path is escaped, so that it stays a path, whatever it is put into. */
export function addressOf(at: Line, pattern: string): string | undefined {
  if (!ABSOLUTE.test(at.file)) return undefined;
  const drive = /^[A-Za-z]:/.exec(at.file)?.[0] ?? "";
  const parts = at.file.slice(drive.length).split(drive ? /[\\/]/ : "/");
  const path = drive + parts.map(encodeURIComponent).join("/");
  return pattern.replaceAll("{file}", () => path).replaceAll("{line}", () => String(at.line));
}
