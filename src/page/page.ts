// The frame around the sections: heading, navigation, the section that the address names, light or dark.
import { html, nothing, render } from "lit-html";
import type { Parts } from "./parts.ts";
import { forget, switchScheme } from "./scheme.ts";
import type { Follower, Head, Page, SectionHead } from "./section.ts";
import { sections } from "./sections/all.ts";

interface Shown {
  element: HTMLElement;
  drawn?: Promise<Follower | void>;
}

/** Shows it in `root`; what is returned ends it, before another page is shown there. */
export function showPage(root: HTMLElement, head: Head, parts: Parts): () => void {
  const ended = new AbortController();
  const shown = new Map<string, Shown>();
  const page: Page = {
    head,
    address: (section, asked = {}) => {
      const query = new URLSearchParams(asked).toString();
      return `#${section}${query ? `?${query}` : ""}`;
    },
    show: (address) => history.pushState(null, "", location.href.replace(/#.*|$/, address)),
  };

  render(frame(head), root);
  for (const section of head.sections) {
    shown.set(section.name, { element: root.querySelector<HTMLElement>(`#section-${section.name}`)! });
  }

  function drawn(section: SectionHead): Promise<Follower | void> {
    const here = shown.get(section.name)!;
    here.drawn ??= draw(section, here.element.querySelector<HTMLElement>(".content")!);
    return here.drawn;
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
      performance.mark(`drawn ${section.name}`); // for those who measure how long a page takes to show something
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
      shown.get(one.name)!.element.hidden = !isOpen;
      const link = root.querySelector(`nav a[href="#${one.name}"]`)!;
      if (isOpen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const follow = await drawn(section);
    if (follow && query) follow(new URLSearchParams(query));
  }

  addEventListener("hashchange", () => void open(), { signal: ended.signal });
  // A page in a frame may have another base for its addresses, as TensorBoard's have: then a link would leave the page.
  root.addEventListener("click", stay, { signal: ended.signal });
  // Printing shows all sections, so they are drawn before anybody can print.
  void open().then(() =>
    whenIdle(() => {
      if (ended.signal.aborted) return;
      for (const section of head.sections) void drawn(section);
    }),
  );
  return () => {
    ended.abort();
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
