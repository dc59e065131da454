// The explorer's state, and what changes it. Computing takes time: what was asked last is what is shown at last.
import type { Scale } from "../colour";
import type { Tensor } from "../memory";
import { EngineError } from "../error";
import type { Grid } from "../grid";
import { matrix, rowOf as gridRow } from "../grid";
import type { Answered, Client } from "./client";
import type { By, Circuit, Grown, HeadId, Info, Next, Part, Pass, Reasons, Trace, Traced, Viewed, Why } from "./model";
import { headOf, isExact, mapOf, ownTokens, passOf, queriesOf, sameHead } from "./model";
import type { GivenFile } from "./protocol";
import { byWords, wordsOf } from "./words";

// What the file was made for: to_html() of a recording or a model (docs/page.md).
export interface Embedded {
  recording?: { file: string; bytes: number; left_out: string | null };
  item?: number;
  head?: string | null;
  model?: { file: string; bytes: number; name: string };
  text?: string;
  second?: string | null;
  why?: string | null;
  against?: string | null;
  chat?: boolean;
}

// What makes a head's weights, and what else its layer does to scores.
export interface HeadSteps {
  tensors: Record<string, Tensor>;
  scale: number;
  others: string[];
}

export interface Selection {
  head: HeadId;
  query: number;
  key: number | null;
}

// What was written after the text: each word with the position whose logits chose it.
interface Written {
  words: { id: number; token: string }[];
  text: string;
  ended: boolean;
}

// What a model says to a text, with all heads, where some are out: of a decoder what comes next, of an encoder how near
// its vector is to that of the second text, and to its own without these heads.
interface Before {
  next?: Next[];
  similarity?: number;
  own?: number;
}
type Ran = Viewed & { next?: Next[]; similarity?: number; before?: Before };

// A word that is asked about; finding: the share of a circuit that is found.
interface Asked {
  about: string;
  answer: Why;
  traced?: { trace: Trace; without: ReadonlyMap<string, number>; left: number };
  circuit?: Circuit;
  finding?: number | undefined;
}
// A part of a row that can be taken out, as a name.
export const tracedName = ({ kind, layer, head }: Part, row: number): string => `${kind} ${layer} ${head ?? ""} ${row}`;

export interface State {
  status: "opening" | "computing" | "writing" | "ready" | "failed";
  progress: number; // of opening
  error: string | null;
  name: string;
  note: string | null; // what the file leaves out
  info: Info | null; // null: a recording
  item: number;
  text: string;
  second: string;
  chat: boolean;
  by: By;
  scale: Scale;
  without: HeadId[];
  pass: Pass | null;
  rows: ReadonlyMap<string, Float32Array>; // of a long text's pass, those that were selected
  written: Written | null;
  similarity: number | null;
  before: Before | null;
  locked: Selection;
  hovered: Partial<Selection>;
  why: Asked | null;
  jacobian: { name: string; prompts: number } | null; // a Jacobian lens that is open
  byJacobian: boolean;
  against: string;
  whole: boolean; // tokens are merged to words
  noSink: boolean; // the column of a head's sink is left out
  kept: Pass | null; // to compare with
}

// What is selected: what is under the pointer, else what was clicked.
export const selectionOf = ({ locked, hovered }: State): Selection => ({ ...locked, ...hovered });
const rowName = ({ head, query }: Selection): string => `${head} ${query}`;
// The selected query's exact weights, or null while they are not there.
export const rowOf = (state: State): Float32Array | null => {
  const selection = selectionOf(state);
  const map = mapOf(state.pass!, selection.head);
  return isExact(state.pass!.layers[selection.head[0]]!, map) ? gridRow(map, selection.query) : (state.rows.get(rowName(selection)) ?? null);
};

interface MapPart {
  grid: Grid;
  queries: number[];
  keys: number[];
  reduction: string; // how pairs became blocks
}
const partOf = (map: Grid, [first, last]: [number, number], [begin, end]: [number, number]): Grid => {
  const rows = Array.from({ length: last - first }, (_, r) => map.data.slice((first + r) * map.cols + begin, (first + r) * map.cols + end));
  return { rows: last - first, cols: end - begin, data: Float32Array.from(rows.flatMap((row) => Array.from(row))) };
};

const longestText = 2000; // letters that are computed while somebody types
const mostWritten = 64;

export class Store {
  state: State;
  private listeners = new Set<() => void>();
  private turn = 0; // of the last thing that was asked for
  private grown: Grown | null = null;
  private stopping = false;
  private wanted = new Set<string>(); // rows of the pass that were asked for

  constructor(private readonly client: Client, embedded: Embedded) {
    this.state = {
      status: "opening", progress: 0, error: null, name: "", note: null, info: null, item: embedded.item ?? 0, text: embedded.text ?? "", second: embedded.second ?? "",
      chat: embedded.chat ?? false, by: "weight", scale: "sqrt", without: [], pass: null, rows: new Map(), written: null, similarity: null, before: null,
      locked: { head: [0, 0], query: 0, key: null }, hovered: {}, why: null, jacobian: null, byJacobian: false, against: "", whole: false, noSink: false, kept: null,
    };
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
  set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }

  private async guarded(status: State["status"], work: (mine: () => boolean) => Promise<void>): Promise<void> {
    const turn = ++this.turn;
    const mine = () => turn === this.turn;
    this.set({ status, error: null });
    try {
      await work(mine);
      if (mine()) this.set({ status: "ready" });
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      if (mine()) this.set({ status: this.state.pass || this.state.info ? "ready" : "failed", error: error.message });
    }
  }

  // ---- What is opened ----

  openEmbedded(embedded: Embedded, base64: Blob): Promise<void> {
    const { model, recording } = embedded;
    if (model) return this.openModel(model.name, [{ name: `/${model.file}`, bytes: model.bytes, from: base64, isBase64: true }], `/${model.file}`, embedded);
    if (recording) return this.openRecording(recording.file, { name: `/${recording.file}`, bytes: recording.bytes, from: base64, isBase64: true }, recording.left_out, embedded.head ?? null);
    this.set({ status: "ready" });
    return Promise.resolve();
  }

  openModel(name: string, files: GivenFile[], path: string, embedded?: Embedded): Promise<void> {
    return this.opens(async (mine) => {
      const info = await this.replaced<Info>({ name, note: null, against: embedded?.against ?? "" }, files, { do: "open", path });
      this.set({ info, by: "weight" });
      if (this.state.text === "") this.set({ text: info.decoder ? "The capital of France is" : "the animal did not cross the street because it was too tired" });
      await this.pass(mine);
      if (embedded?.why && mine()) await this.explainWord(embedded.why, undefined, mine);
    });
  }

  openRecording(name: string, file: GivenFile, note: string | null = null, head: string | null = null): Promise<void> {
    return this.opens(async (mine) => {
      const { item } = this.state;
      const viewed = await this.replaced<Viewed>({ name, note, text: "", by: "weight" }, [file], { do: "recording", path: file.name, item });
      if (mine()) this.show(passOf(viewed), head);
    });
  }

  private opening = Promise.resolve();
  // One after the other, and after the pass that runs, so that what is on show is what the worker has open.
  private opens(work: (mine: () => boolean) => Promise<void>): Promise<void> {
    const opened = Promise.all([this.opening, this.waiting]).then(() => this.guarded("opening", work));
    this.opening = opened.catch(() => undefined);
    return opened;
  }

  // What is shown goes with what is open. Where the other can't be opened both stay.
  private async replaced<T>(change: Partial<State>, files: GivenFile[], request: { do: string; path: string; item?: number }): Promise<Answered<T>> {
    const { state: before, grown } = this;
    this.grown = null;
    this.set({ info: null, pass: null, written: null, without: [], before: null, why: null, jacobian: null, byJacobian: false, hovered: {}, progress: 0, ...change });
    try {
      return await this.client.open<T>(files, request, (progress) => this.set({ progress }));
    } catch (error) {
      this.grown = grown;
      this.set(before);
      throw error;
    }
  }

  // ---- What is computed ----

  ask(change: Partial<Pick<State, "text" | "second" | "chat" | "without">>): Promise<void> {
    this.grown = change.text === undefined && change.chat === undefined ? this.grown : null;
    this.set({ ...change, ...(this.grown ? {} : { written: null }) });
    if (!this.state.info) return Promise.resolve();
    if (this.state.text.length > longestText) {
      this.set({ error: `${this.state.text.length} letters are more than are computed while you type, which is ${longestText}; the command attend model takes longer texts. What stands below is still of the last one` });
      return Promise.resolve();
    }
    if (this.state.text.trim() === "") {
      this.set({ error: "the text is empty: what stands below is still of the last one" });
      return Promise.resolve();
    }
    return this.guarded("computing", (mine) => this.pass(mine));
  }

  // What a request says of the text, or of what it has become, and of the heads that are out.
  private asked(): Record<string, unknown> {
    const { text, chat, pass, without } = this.state;
    const out: Record<string, HeadId[]> = {};
    for (const [layer, head] of without) {
      const [, stack, number, kind] = /^(encoder\.|decoder\.)?(\d+)\.(\w+)$/.exec(pass!.layers[layer]!.name)!;
      (out[stack === "encoder." ? "without_encoder" : kind === "cross" ? "without_cross" : "without"] ??= []).push([Number(number), head]);
    }
    const { written: _, ...ids } = this.grown ?? { written: 0 };
    return { ...(this.grown ? ids : { text, ...(chat && { chat }) }), ...out };
  }

  private waiting = Promise.resolve();
  // One pass at a time; of those that were asked for meanwhile only the last one is computed.
  private pass(mine: () => boolean): Promise<void> {
    const work = this.waiting.then(async () => {
      if (!mine()) return;
      const { without, by, second, info } = this.state;
      const beside = !info!.decoder && second.trim() !== "" ? { beside: second } : {};
      const answer = await this.client.ask<Ran>({ do: "run", ...this.asked(), norm: true, view: true, by, before: without.length > 0, ...beside });
      if (!mine()) return;
      this.set({ similarity: answer.similarity ?? null, before: answer.before ?? null, why: null });
      this.show(passOf(answer, answer.next, this.grown?.written));
    });
    this.waiting = work.catch(() => undefined);
    return work;
  }

  private show(pass: Pass, head: string | null = null): void {
    this.wanted.clear();
    const named = head === null ? undefined : pass.heads.find(({ name }) => name === head);
    const { locked, pass: before } = this.state;
    const first = before ? { ...locked, ...followed(before.words ?? before, pass, locked) } : firstSelection(pass);
    const chosen: HeadId = named ? [named.layer, named.head] : headOf(pass, first.head) ? first.head : [0, pass.layers[0]!.heads[0]!];
    const shown = (this.state.whole && byWords(pass)) || pass;
    this.select({ pass: shown, rows: new Map(), hovered: {}, locked: within(shown, { ...first, head: chosen }) });
  }

  // The word of the selected token stays selected, and its first token of a word.
  lookAtWords(whole: boolean): void {
    const { pass, locked } = this.state;
    this.set({ whole });
    if (!pass) return;
    const words = wordsOf((pass.words ?? pass).tokens);
    const to = (place: number) => (pass.words ? (words[place]?.[0] ?? place) : words.findIndex(([, end]) => place < end));
    const [query, key] = [to(locked.query), locked.key === null ? null : to(locked.key)];
    this.show(pass.words ?? pass);
    if (Boolean(this.state.pass!.words) === whole) this.lock({ query, key });
  }

  lookBy(by: By): Promise<void> {
    return this.guarded("computing", async (mine) => {
      const { next, written } = this.state.pass!.words ?? this.state.pass!;
      const viewed = await this.client.ask<Viewed>({ do: "view", by, item: this.state.item });
      if (!mine()) return;
      this.set({ by });
      this.show(passOf(viewed, next, written));
    });
  }

  toggleHead(head: HeadId): Promise<void> {
    const { without } = this.state;
    const rest = without.filter((each) => !sameHead(each, head));
    return this.ask({ without: rest.length < without.length ? rest : [...without, head] });
  }

  // ---- What is written ----

  write(): Promise<void> {
    this.stopping = false;
    return this.guarded("writing", async (mine) => {
      const first = await this.client.ask<{ ids: number[]; decoder_ids?: number[] }>({ do: "grow", ...this.asked() });
      const own = [...(first.decoder_ids ?? first.ids)];
      const from = own.length;
      const words: Written["words"] = [];
      this.set({ written: { words, text: "", ended: false }, why: null });
      while (mine() && !this.stopping && words.length < mostWritten) {
        const { id, token, written, ended, text } = await this.client.ask<{ id: number; token: string; written: boolean; ended: boolean; text: string }>({ do: "step" });
        if (written) own.push(id), words.push({ id, token });
        this.set({ written: { words: [...words], text, ended } });
        if (ended) break;
      }
      if (!mine()) return;
      // What has been written is looked at, as a text of its own: but for a token that fills the model's places, which no pass reads.
      const read = own.slice(0, this.state.info?.longest ?? own.length);
      this.grown = first.decoder_ids ? { ids: first.ids, decoder_ids: read, written: from } : { ids: read, written: from };
      await this.pass(mine);
    });
  }
  stop(): void {
    this.stopping = true;
  }

  // ---- Why ----

  // Of a likely next token, or of one that was written at a position.
  why(token: string | number, position?: number): Promise<void> {
    return this.guarded("computing", (mine) => this.explainWord(token, position, mine));
  }
  private async explainWord(token: string | number, position: number | undefined, mine: () => boolean): Promise<void> {
    const { against, pass, byJacobian } = this.state;
    const answer: Why = await this.client.ask({ do: "why", token, lens: 3, jacobian: byJacobian, ...(position !== undefined && { position }), ...(against !== "" && { against }) });
    if (!mine()) return;
    const known = pass?.next.find(({ id }) => id === answer.token)?.token;
    this.set({ why: { answer, about: typeof token === "string" ? token : (known ?? ownTokens(pass!)[answer.position + 1] ?? String(token)) } });
  }

  // What the layers mean for the last one, in place of what they would have said as the last one; and back.
  readBy(byJacobian: boolean): Promise<void> {
    this.set({ byJacobian });
    const { token, position } = this.state.why!.answer;
    return this.why(token, position);
  }
  openJacobian(file: GivenFile): Promise<void> {
    return this.guarded("computing", async (mine) => {
      const { prompts } = await this.client.more<{ prompts: number }>(file, { do: "jacobian", path: file.name });
      if (!mine()) return;
      this.set({ jacobian: { name: file.name.slice(1), prompts }, byJacobian: true });
      const { why } = this.state;
      if (why) await this.explainWord(why.answer.token, why.answer.position, mine);
    });
  }

  // ---- From the answer back to the words ----

  // Of what is asked about still: it may have been closed meanwhile.
  private asking(answer: Why, change: Partial<Asked>): void {
    const { why } = this.state;
    if (why?.answer === answer) this.set({ why: { ...why, ...change } });
  }
  // Which answer a request is about.
  private answer(): Record<string, unknown> {
    const { token, against, position } = this.state.why!.answer;
    return { token, position, ...(against !== null && { against }) };
  }

  // The sums first; what is taken out follows, part by part.
  traceBack(): Promise<void> {
    return this.guarded("computing", async (mine) => {
      const { answer } = this.state.why!;
      const asked = this.answer();
      const trace = await this.client.ask<Trace>({ do: "trace", ...asked });
      if (!mine()) return;
      const parts = writtenIn(trace);
      const without = new Map<string, number>();
      this.asking(answer, { traced: { trace, without, left: parts.size } });
      for (const [name, [{ kind, layer, head }, row]] of parts) {
        const { value } = await this.client.ask<{ value: number }>({ do: "without", kind, layer, ...(head !== undefined && { head }), row, ...asked });
        if (!mine() || this.state.why?.traced?.trace !== trace) return;
        without.set(name, value);
        this.asking(answer, { traced: { trace, without, left: parts.size - without.size } });
      }
    });
  }

  // The edges that make the difference to another text, of as many tokens.
  findCircuit(corrupt: string, keep: number): Promise<void> {
    return this.guarded("computing", async (mine) => {
      const { answer } = this.state.why!;
      const tell = (finding?: number) => this.asking(answer, { finding });
      tell(0);
      try {
        const { chat } = this.state;
        const { count, group, against, against_token } = await this.client.ask<Circuit>({ do: "edges", corrupt, chat, ...this.answer() }, (share) => tell(share * 0.8));
        const circuit = await this.client.ask<Circuit>({ do: "circuit", keep }, (share) => tell(0.8 + share * 0.2));
        if (mine()) this.asking(answer, { circuit: { ...circuit, count, group, against, against_token } });
      } finally {
        tell();
      }
    });
  }
  // The circuit's difference where a part writes nothing.
  async withoutNode({ kind, layer, head }: Part): Promise<number> {
    const { circuit } = this.state.why!;
    const { value } = await this.client.ask<{ value: number }>({ do: "without", kind, layer, ...(head !== undefined && { head }), ...this.answer(), against: circuit!.against });
    return value;
  }

  // Why a head looks there: [layer, head] of the recording.
  reasons([layer, head]: HeadId, query: number, key: number): Promise<Reasons> {
    const number = Number(/\d+/.exec(this.state.pass!.layers[layer]!.name)![0]);
    return this.client.ask({ do: "score", head: [number, head], query, key });
  }

  // ---- What one head gives ----

  hover(hovered: Partial<Selection>): void {
    this.select({ hovered });
  }
  lock(change: Partial<Selection>): void {
    const { pass, locked } = this.state;
    if (pass) this.select({ locked: within(pass, { ...locked, ...change }), hovered: {} });
  }
  // Of tokens, also where words are shown.
  lockToken(change: Partial<Selection>): void {
    if (this.state.pass?.words) this.lookAtWords(false);
    this.lock(change);
  }
  // Another selection; of a long text its row is asked for.
  private select(change: Partial<State>): void {
    this.set(change);
    const { pass, item } = this.state;
    const selection = selectionOf(this.state);
    const { head: [layer, head], query } = selection;
    const name = rowName(selection);
    if (!pass || this.wanted.has(name) || rowOf(this.state)) return;
    this.wanted.add(name);
    void this.client
      .ask({ do: "map", layer, head, queries: [query, query + 1], by: pass.by, item })
      .then(({ tensors }) => { if (this.state.pass === pass) this.set({ rows: new Map(this.state.rows).set(name, tensors.map!.data) }); })
      .catch(() => undefined); // a recording without q and k has blocks alone
  }

  // A part of a head's map, in at most so many rows and columns. Without q and k there are the blocks that were recorded, of all.
  async map(head: HeadId, queries: [number, number], keys: [number, number], most: number): Promise<MapPart> {
    const { pass, by, item } = this.state;
    if (pass!.words) return { grid: partOf(mapOf(pass!, head), queries, keys), queries, keys, reduction: "" };
    const layer = pass!.layers[head[0]]!;
    const part = layer.qk || isExact(layer, mapOf(pass!, head)) ? { queries, keys } : {};
    const { tensors, ...answer } = await this.client.ask<{ queries: number[]; keys: number[]; reduction: string }>({ do: "map", layer: head[0], head: head[1], ...part, most: [most, most], by, item });
    return { ...answer, grid: matrix(tensors.map!) };
  }
  // The tensors of docs/json.md's trace, of one head or of some of its queries and keys, and what its layer does to scores.
  async steps([layer, head]: HeadId, part: { queries?: [number, number]; keys?: [number, number] } = {}): Promise<HeadSteps> {
    const [{ tensors }, { calls }] = await Promise.all([this.client.ask({ do: "steps", layer, head, item: this.state.item, ...part }), this.layer(layer)]);
    const of = calls.filter(({ queries: [begin, end] }) => !part.queries || (part.queries[0] < end! && part.queries[1] > begin!));
    return { tensors, scale: of[0]!.scale, others: of.flatMap(({ numbers, tensors: given }) => [...Object.keys(numbers), ...given]) };
  }
  numbers(layer: number, name: string): Promise<{ shape: number[]; data: Float32Array }> {
    return this.client.ask({ do: "numbers", layer, name }).then(({ tensors }) => tensors.numbers!);
  }
  layer(layer: number): Promise<{ kv_heads: number; calls: { queries: number[]; scale: number; numbers: Record<string, number>; tensors: string[] }[] }> {
    return this.client.ask({ do: "layer", layer });
  }
}

// What of a trace can be taken out, each once, with its row.
const writtenIn = ({ heads, position }: Trace): Map<string, [Part, number]> => {
  const all = heads.flatMap(({ wrote, query, key, read }): [Traced, number][] => [
    [wrote, position], ...query.map((part): [Traced, number] => [part, position]), ...[...key, ...read].map((part): [Traced, number] => [part, wrote.key!]),
  ]);
  return new Map(all.filter(([{ kind }]) => kind !== "embedding" && kind !== "bias").map(([part, row]) => [tracedName(part, row), [part, row]]));
};

// What "it" looks at, where there is such a word: its heads are what a reader wonders about first. Else the head whose links
// between words are strongest, at its strongest link.
const pronoun = /^(it|he|she|they|him|her|them)$/i;
const firstSelection = (pass: Pass): Selection => {
  const query = pass.tokens.findIndex((token) => pronoun.test(token.trim()));
  const look = pass.looks[query]?.[0];
  if (look) return { head: [look.layer, look.head], query, key: look.key };
  const telling = pass.telling[0];
  const link = telling?.links[0];
  return telling && link ? { head: [telling.layer, telling.head], query: link.query, key: link.key } : { head: [0, pass.layers[0]!.heads[0]!], query: queriesOf(pass, 0).length - 1, key: null };
};

// The selected word in another text: in its place, or where it stands nearest to it. Where it is gone, what stands in its place
// in a text of as many tokens; else a decoder's last token, or where an encoder's text is first looked at.
const followed = (before: Pass, pass: Pass, { head: [layer], query, key }: Selection): Partial<Selection> => {
  const [from, to] = [before, pass].map((of) => (layer < of.layers.length ? queriesOf(of, layer) : []));
  if (String(from) === String(to)) return {};
  const places = to!.map((token, place) => ({ token, place })).filter(({ token }) => token === from![query]);
  const nearest = places.sort((a, b) => Math.abs(a.place - query) - Math.abs(b.place - query))[0];
  if (nearest) return { query: nearest.place, key: nearest.place === query ? key : null };
  if (from!.length === to!.length) return {};
  return { query: pass.next.length > 0 ? to!.length - 1 : firstSelection(pass).query, key: null };
};

// What of a selection the pass has: a text that became shorter has fewer tokens.
const within = (pass: Pass, { head, query, key }: Selection): Selection => {
  const { queries, keys } = pass.layers[head[0]]!;
  return { head, query: Math.min(query, queries - 1), key: key !== null && key < keys ? key : null };
};
