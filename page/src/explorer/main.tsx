import { render } from "preact";
import { content, start, taken } from "../start";
import { Explorer } from "./app";
import { Client } from "./client";
import { follow } from "./hash";
import type { Embedded } from "./store";
import { Store } from "./store";

void start((error) => `This browser can't run the page that computes (${error}); what follows is without it.`, async (shown) => {
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
});
