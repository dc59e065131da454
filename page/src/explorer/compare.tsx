// One head less another, a layer's mean less another's, or a head less itself in a text that was kept: on a diverging scale.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Rgb } from "../colour";
import { paintValues, signedRgb, styleRgb } from "../colour";
import type { Grid } from "../grid";
import { at, cellUnder } from "../grid";
import type { HeadId, Pass } from "./model";
import { headOf, isExact, mapOf, shownToken } from "./model";
import { Framed } from "./map";
import type { State, Store } from "./store";

const meanOf = (maps: Grid[]): Grid => ({ ...maps[0]!, data: maps[0]!.data.map((_, place) => maps.reduce((sum, { data }) => sum + data[place]!, 0) / maps.length) });
const difference = (a: Grid, b: Grid): Grid => ({ ...a, data: a.data.map((value, place) => value - b.data[place]!) });

function Differences({ grid, queries, keys, cell, store }: { grid: Grid; queries: string[]; keys: string[]; cell: [number, number]; store: Store }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const largest = grid.data.reduce((most, value) => (Number.isNaN(value) ? most : Math.max(most, Math.abs(value))), 0);
  useEffect(() => {
    const [zero, negative, positive] = ["--zero", "--negative", "--positive"].map(styleRgb) as [Rgb, Rgb, Rgb];
    paintValues(canvas.current!, grid, (value) => signedRgb(value, largest, { zero, negative, positive }));
  });
  const value = at(grid, cell[0], cell[1]);
  const strongest = Array.from(grid.data, (each, place) => ({ each, place })).filter(({ each }) => !Number.isNaN(each) && each !== 0).sort((a, b) => Math.abs(b.each) - Math.abs(a.each)).slice(0, 5);
  const choose = (event: MouseEvent) => {
    const [query, key] = cellUnder(event, canvas.current!, grid.rows, grid.cols);
    store.lock({ query, key });
  };
  return (
    <>
      <Framed queries={queries} keys={keys} cell={cell}>
      <canvas ref={canvas} role="img" aria-label={`Differences, at most ${largest.toFixed(3)}`} onClick={choose} data-largest={largest} />
      </Framed>
      <p class="quiet"><i class="swatch negative" /> less <i class="swatch" /> more, up to {largest.toFixed(3)}{!Number.isNaN(value) && <>; <bdi class="word">{shownToken(queries[cell[0]]!)}</bdi> → <bdi class="word">{shownToken(keys[cell[1]]!)}</bdi>: <output>{value.toFixed(4)}</output></>}</p>
      <ol class="quiet">
        {strongest.map(({ each, place }) => (
          <li key={place}><bdi>{shownToken(queries[Math.floor(place / grid.cols)]!)}</bdi> → <bdi>{shownToken(keys[place % grid.cols]!)}</bdi> {each > 0 ? "+" : "−"}{Math.abs(each).toFixed(3)}</li>
        ))}
      </ol>
    </>
  );
}

export function Compare({ store, state, id, queries, keys, cell }: { store: Store; state: State; id: HeadId; queries: string[]; keys: string[]; cell: [number, number] }) {
  const pass = state.pass!;
  const { kept } = state;
  const [other, setOther] = useState("");
  const map = mapOf(pass, id);
  const layer = pass.layers[id[0]]!;
  if (!isExact(layer, map)) return <p>{queries.length} words are too many to compare pair by pair here.</p>;
  const same = (of: Pass, name: string) => of.heads.find((head) => head.name === name && of.layers[head.layer]!.queries === layer.queries && of.layers[head.layer]!.keys === layer.keys);
  const name = headOf(pass, id)!.name;
  const before = kept && same(kept, name);
  const layers = pass.layers.map(({ name: own }, l) => ({ l, own })).filter(({ l }) => l !== id[0] && pass.layers[l]!.queries === layer.queries && pass.layers[l]!.keys === layer.keys);
  const ofLayer = layers.find(({ own }) => other === `layer ${own}`);
  const chosen = other === "" || ofLayer ? undefined : same(pass, other);
  const from = ofLayer ? meanOf(pass.maps[ofLayer.l]!) : chosen ? mapOf(pass, [chosen.layer, chosen.head]) : before && other === "" ? mapOf(kept!, [before.layer, before.head]) : null;
  const what = ofLayer ? meanOf(pass.maps[id[0]]!) : map;
  return (
    <div class="compare">
      <p>
        {ofLayer ? `The mean of layer ${layer.name}` : `Head ${name}`} less <select aria-label="Less which head" value={other} onChange={(event) => setOther(event.currentTarget.value)}>
          <option value="">{kept ? `itself in “${kept.tokens.join(" ").slice(0, 40)}”` : "itself in a text that is kept"}</option>
          {pass.heads.filter((head) => head.name !== name && same(pass, head.name)).map((head) => <option key={head.name} value={head.name}>head {head.name}</option>)}
          {layers.map(({ own }) => <option key={own} value={`layer ${own}`}>the mean of layer {own}</option>)}
        </select>{" "}
        {state.info && <button type="button" onClick={() => store.set({ kept: pass })}>Keep this text</button>}
      </p>
      {from ? <Differences grid={difference(what, from)} queries={queries} keys={keys} cell={cell} store={store} /> : <p class="quiet">{kept ? `The text that was kept has ${kept.tokens.length} tokens, this one ${pass.tokens.length}: texts of as many tokens are compared.` : "Choose a head; or keep this text, and change a word of it."}</p>}
    </div>
  );
}
