// The contract between the frame and its sections: page.ts draws the sections, and none of them knows page.ts.

/** The heading of a section as opspan writes it. A section without data has `why`, and the `command` that records it. */
export interface SectionHead {
  name: string;
  title: string;
  why: string;
  command: string;
}

/** The heading of the page, and its sections. */
export interface Head {
  title: string;
  about: string; // one line: tool, ranks, devices, time
  editor: string; // the address of a line of source, with {file} and {line} in place of both
  sections: SectionHead[];
}

/** The part of the page that a section may use. */
export interface Page {
  head: Head;
  /** Returns the address of a place in the page, such as `address("timeline", {name: "aten::mm"})`. */
  address(section: string, query?: Record<string, string>): string;
  /** Puts an address into the browser's address bar. Unlike a click on a link, it draws nothing. */
  show(address: string): void;
}

/** Takes a section to the place that the query of an address names, such as `name=aten::mm`. */
export type Follower = (query: URLSearchParams) => void;

/** A module of a section: it is drawn once, and returns a follower if addresses can lead to places in it. */
export interface Section {
  draw(root: HTMLElement, data: never, page: Page): Follower | void;
}
