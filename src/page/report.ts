// The start of a page that is one file and has all its data in it.
import { EmbeddedParts } from "./parts.ts";
import { showPage } from "./page.ts";
import type { Head } from "./section.ts";
import "./page.css";

const head = JSON.parse(document.getElementById("head")!.textContent!) as Head;
showPage(document.getElementById("page")!, head, new EmbeddedParts());
