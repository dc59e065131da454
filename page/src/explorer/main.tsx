import { render } from "preact";
import { Explorer } from "./app";
import { Client } from "./client";
import { follow } from "./hash";
import type { Embedded } from "./store";
import { Store } from "./store";

const content = (id: string): string => document.getElementById(id)!.textContent ?? "";
// What may be large leaves the page's own memory: the browser keeps it.
const taken = (id: string): Blob => {
  const blob = new Blob([content(id)]);
  document.getElementById(id)!.remove();
  return blob;
};

// What the file shows without a script stays until the engine runs: a browser that can't run it loses nothing.
const start = async (): Promise<void> => {
  const shown = document.getElementById("static")!;
  try {
    const embedded = JSON.parse(content("request").trim() || "{}") as Embedded;
    const client = new Client(content("worker"));
    await client.start(taken("engine"));
    const store = new Store(client, embedded);
    Object.assign(window, { attend: store }); // for the browser's console: docs/page.md
    const linked = location.hash;
    render(<Explorer store={store} />, document.getElementById("app")!);
    shown.remove();
    await store.openEmbedded(embedded, taken("file"));
    if (linked.length > 1) await follow(store, linked);
  } catch (error) {
    const note = document.createElement("p");
    note.className = "problem";
    note.textContent = `This browser can't run the page that computes (${String(error)}); what follows is without it.`;
    shown.prepend(note);
  }
};

void start();
