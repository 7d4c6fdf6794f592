// Reads the data of sections from the page itself, or from a server if the page is shown in TensorBoard.

export interface Parts {
  read(name: string): Promise<unknown>;
}

/** Reads the data of sections from the page. The data of the section NAME is in the element
 * <script type="text/plain" id="part-NAME">, as JSON that was deflated and then written in base 64. */
export class EmbeddedParts implements Parts {
  async read(name: string): Promise<unknown> {
    const text = document.getElementById(`part-${name}`)?.textContent;
    if (!text) throw new Error(`this page has no part ${name}`);
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(inflated).json();
  }
}

/** Fetches the data of sections from a server, which answers with JSON. */
export class FetchedParts implements Parts {
  constructor(private readonly address: (name: string) => string) {}

  async read(name: string): Promise<unknown> {
    const answer = await fetch(this.address(name));
    if (!answer.ok) throw new Error((await answer.text()) || `${answer.status} ${answer.statusText}`);
    return answer.json();
  }
}
