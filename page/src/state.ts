// What the page shows: the request and its trace, the step, the head, and one selection that all matrices share.
import type { Scale } from "./colour";
import type { Engine, Request, Trace } from "./engine";
import { parseRequest } from "./engine";
import { EngineError } from "./error";
import { argmax, gridOf, headsOf, logitsOf, rowOf } from "./grid";
import { openingTrace } from "./opening";
import { say } from "./words";

// The places that a matrix' rows and columns stand for: queries i, keys j, numbers d of a query, key or value, numbers e
// of an embedding, numbers c of the joined heads.
export type Axis = "i" | "j" | "d" | "e" | "c";
// What is selected on each axis, and the matrix that was touched.
export type Cursor = Partial<Record<Axis, number>> & { on?: string };

// Colours of weights from 0 to the largest that there are, or to 1.
export type Range = "narrow" | "whole";

export interface State {
  request: Request;
  trace: Trace;
  error: string | null; // what the library says of a request that it can't answer; the trace is then the last one
  step: string;
  head: number;
  locked: Cursor;
  hovered: Cursor;
  scale: Scale; // of the weights' colours
  range?: Range; // and how far these go; without: to 1, and it is not to be chosen
  before: Trace | null; // what was kept to compare with
  back?: Request; // what the opening's head was shown instead of
}

export type Action =
  | { do: "ask"; request: Request }
  | { do: "opening" } // its head, with the model's own numbers
  | { do: "step"; step: string }
  | { do: "head"; head: number }
  | { do: "hover"; cursor: Cursor }
  | { do: "lock"; cursor: Cursor }
  | { do: "clear" }
  | { do: "scale"; scale: Scale }
  | { do: "range"; range: Range }
  | { do: "compare"; trace: Trace | null };

export const firstStep = "picture"; // of steps/index.ts

// Beyond this many words a page is the wrong thing to look at.
const mostWords = 200;
const words = (text: string): number => text.split(/\s+/u).filter((word) => word !== "").length;

const tooLong = (request: Request): string | null => {
  const most = Math.max(words(request.text ?? ""), words(request.second_text ?? ""));
  return most <= mostWords ? null : say.tooLong(most, mostWords);
};

const answer = (engine: Engine, request: Request): { trace: Trace } | { error: string } => {
  const error = tooLong(request);
  if (error) return { error };
  try {
    return { trace: engine.explain(request) };
  } catch (error) {
    if (error instanceof EngineError) return { error: error.message.replace(/^explain: /, "") };
    throw error;
  }
};

// What of a selection the trace has: a link, or a sentence that became shorter, may ask for more.
const within = (trace: Trace, { on, ...places }: Cursor): Cursor => {
  const sizes: Record<Axis, number> = {
    i: trace.labels.length,
    j: trace.key_labels.length,
    d: Math.max(gridOf(trace, "queries").cols, gridOf(trace, "values").cols),
    e: trace.tensors.embeddings?.shape.at(-1) ?? 0,
    c: trace.tensors.concat_heads?.shape.at(-1) ?? 0,
  };
  const kept = Object.entries(places).filter(([axis, place]) => place !== undefined && place < sizes[axis as Axis]);
  return { ...Object.fromEntries(kept), ...(on === undefined ? {} : { on }) };
};
const headWithin = (trace: Trace, head: number): number => Math.min(head, headsOf(trace) - 1);

const opened = (engine: Engine, back: Request | undefined): Pick<State, "trace" | "request" | "error" | "before" | "back"> =>
  ({ trace: openingTrace(engine.defaults), request: {}, error: null, before: null, back });

export const reducer =
  (engine: Engine) =>
  (state: State, action: Action): State => {
    switch (action.do) {
      case "ask": {
        const made = answer(engine, action.request);
        if ("error" in made) return { ...state, request: action.request, error: made.error };
        const { trace } = made;
        return {
          ...state,
          request: action.request,
          trace,
          error: null,
          head: headWithin(trace, state.head),
          locked: within(trace, state.locked),
          hovered: {},
        };
      }
      case "opening":
        return { ...state, ...opened(engine, state.trace.model === undefined ? state.request : state.back), head: 0, locked: {}, hovered: {}, step: firstStep };
      case "step":
        return { ...state, step: action.step, hovered: {} };
      case "head":
        return { ...state, head: headWithin(state.trace, action.head) };
      case "hover":
        return { ...state, hovered: action.cursor };
      case "lock":
        return { ...state, locked: within(state.trace, { ...state.locked, ...action.cursor }), hovered: {} };
      case "scale":
        return { ...state, scale: action.scale };
      case "range":
        return { ...state, range: action.range };
      case "clear":
        return { ...state, locked: {}, hovered: {} };
      case "compare":
        return { ...state, before: action.trace };
    }
  };

// Where the strongest colour of weights stands: a round number that no weight exceeds, in any head or in what was kept to
// compare with, so that the same colour is the same number in all of them. Among ten words most weights lie near 0.1, and on
// colours from 0 to 1 would look alike.
const tops = [0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1];
const largest = new WeakMap<Trace, number>();
const largestOf = (trace: Trace): number => {
  if (!largest.has(trace)) largest.set(trace, trace.tensors.weights!.data.reduce((most, weight) => Math.max(most, weight), 0));
  return largest.get(trace)!;
};
export const largestWeight = ({ trace, before }: Pick<State, "trace" | "before">): number => Math.max(largestOf(trace), before ? largestOf(before) : 0);
export const topOf = (state: Pick<State, "trace" | "before" | "range">): number =>
  state.range === "narrow" ? tops.find((top) => top >= largestWeight(state)) ?? 1 : 1;

// What is worked out: what is under the pointer, else what is locked, else the trace's own query with the key that it
// matches best.
export interface Selection {
  i: number;
  j: number;
  d: number;
  e: number;
  c: number;
  on: string | undefined;
}
export const selectionOf = ({ trace, head, locked, hovered }: State): Selection => {
  const cursor = { ...locked, ...hovered };
  const i = cursor.i ?? trace.focus;
  const best = argmax(rowOf(logitsOf(trace, head), i));
  return { i, j: cursor.j ?? best, d: cursor.d ?? 0, e: cursor.e ?? 0, c: cursor.c ?? 0, on: cursor.on };
};

// The request as explain() completed it, so that a switch changes that alone.
const requestOf = (trace: Trace): Request => (trace.preset ? { preset: trace.preset } : { ...trace.made });

// A change to a sentence's options. A preset is what its document says: changed, it is its sentence with its sizes.
export const changed = (state: State, change: Request): Request => {
  if (change.preset) return change;
  const { preset, ...request } = { ...state.trace.made, ...state.request } as Request;
  const next = preset ? { ...state.trace.made, ...change } : { ...request, ...change };
  return next.second_text ? { ...next, causal: false, window: null } : next;
};

interface Place {
  opening?: boolean;
  step?: string;
  head?: number;
  i?: number;
  j?: number;
}

// The URL's hash: names and values, as in the query of a URL. Words count from 1 there, heads from 0. Defaults, and the first
// step, are left out.
export const hashOf = ({ request, trace, step, head, locked }: State, defaults: Request): string => {
  const fields = new URLSearchParams();
  if (trace.model !== undefined) fields.set("model", trace.model);
  else for (const [name, value] of Object.entries(request))
    if (value !== undefined && value !== defaults[name as keyof Request]) fields.set(name, String(value));
  if (step !== firstStep) fields.set("step", step);
  if (head > 0) fields.set("head", String(head));
  if (locked.i !== undefined) fields.set("query", String(locked.i + 1));
  if (locked.j !== undefined) fields.set("key", String(locked.j + 1));
  return `#${fields}`;
};

const numbers = ["embedding_size", "d_k", "d_v", "heads", "window"] as const;
const flags = ["causal", "positions", "scale"] as const;
export const fromHash = (hash: string): { request: Request; place: Place } => {
  const fields = new URLSearchParams(hash.slice(1));
  const request: Request = {};
  for (const name of ["preset", "text", "second_text"] as const) if (fields.has(name)) request[name] = fields.get(name)!;
  if (/^\d+$/.test(fields.get("seed") ?? "")) request.seed = fields.get("seed")!;
  for (const name of numbers) if (/^\d+$/.test(fields.get(name) ?? "")) request[name] = Number(fields.get(name));
  for (const name of flags) if (fields.has(name)) request[name] = fields.get(name) === "true";
  const weights = fields.get("weights");
  if (weights === "linear" || weights === "uniform") request.weights = weights;
  const place = (name: string, first: number) => {
    const digits = fields.get(name) ?? "";
    return /^\d+$/.test(digits) && Number(digits) >= first ? Number(digits) - first : undefined;
  };
  const step = fields.get("step") ?? undefined;
  return { request: request.preset ? { preset: request.preset } : request, place: { opening: fields.has("model"), step, head: place("head", 0), i: place("query", 1), j: place("key", 1) } };
};

// Rows that are spread evenly, as random numbers make them, differ little: on the square root's colours they would look alike.
const firstScale = (trace: Trace): Scale => (largestOf(trace) < 0.5 ? "linear" : "sqrt");

// What the page opens with: the hash of a link, else what the file was made for. A request that can't be answered shows
// the documents' sentence, and what is wrong.
export const firstState = (engine: Engine, embedded: string, hash: string): State => {
  const { focus, head, ...made } = parseRequest(embedded.trim() || "{}");
  const linked = fromHash(hash);
  const isLinked = Object.keys(linked.request).length > 0;
  const request = isLinked ? linked.request : made;
  const answered = linked.place.opening ? opened(engine, made) : answer(engine, request);
  const trace = "trace" in answered ? answered.trace : engine.explain({ preset: "life" });
  const asked: Place = linked.place.opening ? {} : { head, i: focus };
  const place: Place = { ...asked, ...Object.fromEntries(Object.entries(linked.place).filter(([, value]) => value !== undefined)) };
  return {
    request: "trace" in answered && !isLinked ? requestOf(trace) : request,
    error: null,
    ...answered,
    trace,
    step: place.step ?? firstStep,
    head: headWithin(trace, place.head ?? 0),
    locked: within(trace, { i: place.i, j: place.j }),
    hovered: {},
    scale: firstScale(trace),
    range: "narrow",
    before: null,
  };
};

// What differs between two traces, as "causal off, heads 1": the name of the one that was kept.
export const difference = (before: Trace, now: Trace): string => {
  const said = (value: unknown): string => (value === true ? say.difference.on : value === false ? say.difference.off : value === null ? say.difference.none : String(value));
  const differing = (Object.keys(before.made) as (keyof Trace["made"])[]).filter((name) => before.made[name] !== now.made[name]);
  return differing.map((name) => `${say.options[name]} ${said(before.made[name])}`).join(", ") || say.difference.nothing;
};
