// The types that page.ts and the sections share. page.ts draws the sections, but no section imports page.ts.

/** The heading of a section, as opspan writes it into the page. If the section has no data, `why` is the reason, and
 * `command` is a command that would provide the data. */
export interface SectionHead {
  name: string;
  title: string;
  why: string;
  command: string;
}

/** The heading of the page, and its sections. */
export interface Head {
  title: string;
  about: string; // one line with the tool, the ranks, the devices, the time and more
  editor: string; // the address that opens a source line in an editor, with the placeholders {file} and {line}
  sections: SectionHead[];
}

/** The data and functions of the page that a section may use. */
export interface Page {
  head: Head;
  /** Returns the address of a place in the page, such as `address("timeline", {name: "aten::mm"})`. */
  address(section: string, query?: Record<string, string>): string;
  /** Puts an address into the browser's address bar. Unlike a click on a link, it draws nothing. */
  show(address: string): void;
}

/** Shows the place in a section that the query of an address names, such as `name=aten::mm`. */
export type Follower = (query: URLSearchParams) => void;

/** A module that draws a section. `draw` is called once. It returns a `Follower` if addresses can name places in the
 * section. */
export interface Section {
  draw(root: HTMLElement, data: never, page: Page): Follower | void;
}
