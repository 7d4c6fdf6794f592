// Draws the page around the sections: the heading, the navigation, and the light / dark button. Shows the section that
// the address names.
import { html, nothing, render } from "lit-html";
import type { Parts } from "./parts.ts";
import { forget, switchScheme } from "./scheme.ts";
import type { Follower, Head, Page, SectionHead } from "./section.ts";
import { sections } from "./sections/all.ts";

interface Place {
  element: HTMLElement;
  drawing?: Promise<Follower | void>; // missing until the section is drawn for the first time
}

/** Shows the page in `root`. Returns a function that removes the page. Call the function before you show another page
 * in `root`. */
export function showPage(root: HTMLElement, head: Head, parts: Parts): () => void {
  const removal = new AbortController();
  const places = new Map<string, Place>();
  const page: Page = {
    head,
    address: (section, query = {}) => {
      const text = new URLSearchParams(query).toString();
      return `#${section}${text ? `?${text}` : ""}`;
    },
    show: (address) => history.pushState(null, "", location.href.replace(/#.*|$/, address)),
  };

  render(frame(head), root);
  for (const section of head.sections) {
    places.set(section.name, { element: root.querySelector<HTMLElement>(`#section-${section.name}`)! });
  }

  function drawOnce(section: SectionHead): Promise<Follower | void> {
    const place = places.get(section.name)!;
    place.drawing ??= draw(section, place.element.querySelector<HTMLElement>(".content")!);
    return place.drawing;
  }

  async function draw(section: SectionHead, content: HTMLElement): Promise<Follower | void> {
    if (section.why) {
      content.replaceChildren();
      render(empty(section), content);
      return;
    }
    try {
      const data = (await parts.read(section.name)) as never;
      content.replaceChildren();
      const follow = sections[section.name]!.draw(content, data, page);
      performance.mark(`drawn ${section.name}`); // tells benchmarks when the section was drawn
      return follow;
    } catch (error) {
      content.replaceChildren();
      render(html`<p class="empty">This part cannot be shown: ${String(error)}</p>`, content);
      throw error;
    }
  }

  async function open(): Promise<void> {
    const [name, query = ""] = location.hash.slice(1).split("?", 2) as [string, string?];
    const section = head.sections.find((one) => one.name === name) ?? head.sections[0]!;
    for (const one of head.sections) {
      const isOpen = one === section;
      places.get(one.name)!.element.hidden = !isOpen;
      const link = root.querySelector(`nav a[href="#${one.name}"]`)!;
      if (isOpen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const follow = await drawOnce(section);
    if (follow && query) follow(new URLSearchParams(query));
  }

  addEventListener("hashchange", () => void open(), { signal: removal.signal });
  // In an iframe such as TensorBoard's, the base URL can differ from the page's URL. Then the browser would leave the
  // page at a click on a link like #kernels. So `stay` handles such clicks.
  root.addEventListener("click", stay, { signal: removal.signal });
  // Draw all sections soon, even if nobody opens them, because a print of the page contains all of them.
  void open().then(() =>
    whenIdle(() => {
      if (removal.signal.aborted) return;
      for (const section of head.sections) void drawOnce(section);
    }),
  );
  return () => {
    removal.abort();
    forget();
    root.replaceChildren();
  };
}

function stay(event: MouseEvent): void {
  const address = (event.target as Element).closest?.("a")?.getAttribute("href");
  if (!address?.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = address;
}

function whenIdle(call: () => void): void {
  if ("requestIdleCallback" in window) requestIdleCallback(call, { timeout: 2000 });
  else setTimeout(call, 200);
}

const frame = (head: Head) => html`
  <div class="page">
    <header>
      <h1>${head.title}</h1>
      <span class="quiet">${head.about}</span>
      <button class="scheme" @click=${switchScheme}>Light / dark</button>
    </header>
    <nav aria-label="Sections">
      ${head.sections.map((section) => html`<a href="#${section.name}">${section.title}</a>`)}
    </nav>
    <main>
      ${head.sections.map(
        (section) => html`
          <section id="section-${section.name}" aria-labelledby="title-${section.name}" hidden>
            <h2 id="title-${section.name}">${section.title}</h2>
            <div class="content"><p class="unpacking quiet">Unpacking ...</p></div>
          </section>
        `,
      )}
    </main>
  </div>
`;

const empty = (section: SectionHead) => html`
  <div class="empty">
    <p>${section.why}</p>
    ${section.command ? html`<p>What fills it: <code>${section.command}</code></p>` : nothing}
  </div>
`;
