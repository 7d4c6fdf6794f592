// Starts a page that is one file and contains all its data.
import { EmbeddedParts } from "./parts.ts";
import { showPage } from "./page.ts";
import type { Head } from "./section.ts";
import "./page.css";

const head = JSON.parse(document.getElementById("head")!.textContent!) as Head;
showPage(document.getElementById("page")!, head, new EmbeddedParts());
