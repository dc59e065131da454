// The link: what is selected, in the URL's hash. A click is a step of the browser's history, so that Back undoes it.
import { useEffect, useRef } from "preact/hooks";
import type { HeadId } from "./model";
import type { State, Store } from "./store";

const hashOf = ({ pass, locked, text, second, by, without, info }: State): string => {
  const fields = new URLSearchParams();
  const name = ([layer, head]: HeadId) => pass?.heads.find((each) => each.layer === layer && each.head === head)?.name ?? "";
  if (info) fields.set("text", text);
  if (second) fields.set("second", second);
  if (by !== "weight") fields.set("by", by);
  fields.set("head", name(locked.head));
  fields.set("query", String(locked.query));
  if (locked.key !== null) fields.set("key", String(locked.key));
  if (without.length > 0) fields.set("without", without.map(name).join());
  return `#${fields}`;
};

// What a hash asks for; what it does not say stays.
export const follow = async (store: Store, hash: string): Promise<void> => {
  const fields = new URLSearchParams(hash.slice(1));
  const head = (name: string): HeadId | null => {
    const found = store.state.pass?.heads.find((each) => each.name === name);
    return found ? [found.layer, found.head] : null;
  };
  const { state } = store;
  const text = fields.get("text") ?? state.text;
  const second = fields.get("second") ?? (fields.has("head") ? "" : state.second);
  const without = (fields.get("without") ?? "").split(",").map(head).filter((each) => each !== null);
  const by = fields.get("by") ?? (fields.has("head") ? "weight" : state.by);
  if (state.info && (text !== state.text || second !== state.second || String(without) !== String(state.without))) await store.ask({ ...(text !== state.text && { text }), second, without });
  if ((by === "weight" || by === "norm") && by !== store.state.by) await store.lookBy(by);
  const chosen = head(fields.get("head") ?? "");
  const place = (name: string): number | null => (/^\d+$/.test(fields.get(name) ?? "") ? Number(fields.get(name)) : null);
  const query = place("query");
  if (chosen) store.lock({ head: chosen, key: place("key"), ...(query !== null && { query }) });
};

export function useHash(store: Store, state: State): string {
  const hash = state.pass ? hashOf(state) : "";
  const last = useRef({ text: state.text, following: false });
  useEffect(() => {
    if (hash === "" || last.current.following || location.hash === hash) return;
    try {
      // While somebody types, a letter is no step of its own.
      const typing = last.current.text !== state.text || location.hash === "";
      last.current.text = state.text;
      if (typing) history.replaceState(null, "", hash);
      else history.pushState(null, "", hash);
    } catch {
      // A notebook's frame has no history to write to.
    }
  }, [hash]);
  useEffect(() => {
    const onPop = () => {
      last.current.following = true;
      void follow(store, location.hash).finally(() => { last.current.following = false; });
    };
    addEventListener("popstate", onPop);
    return () => removeEventListener("popstate", onPop);
  }, []);
  return hash;
}
