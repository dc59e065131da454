// What is seen, to take away: as a picture, as numbers, or as the lines of Python that give it.
import { useState } from "preact/hooks";
import { formats, toClipboard } from "../copy";
import type { Grid } from "../grid";
import { at } from "../grid";
import type { Picture } from "../picture";
import { save, savePng, saveSvg } from "../picture";
import type { HeadId } from "./model";
import { headOf, shownToken, topOf } from "./model";
import type { State, Store } from "./store";

const mostCells = 128; // of a side of a picture

// The lines that give the numbers on show: by norm, where they are by norm.
const python = ({ info, name, text, pass, without }: State, [layer, head]: HeadId): string => {
  const norm = pass!.by === "norm";
  const weights = `weights = recording[${JSON.stringify(pass!.layers[layer]!.name)}].weights(head=${head}${norm ? ', by="norm"' : ""})\n`;
  return info
    ? `import attend\n\nmodel = attend.Model.load(${JSON.stringify(name)})\nids = model.tokenizer.encode(${JSON.stringify(text)}).ids\n` +
      `${without.length > 0 ? `# without heads ${without.map((id) => headOf(pass!, id)?.name).join(", ")}, which this does not take out\n` : ""}recording = model.record(ids, keep="qk"${norm ? ", key_sizes=True" : ""})\n${weights}`
    : `import attend\n\nrecording = attend.Recording.load(${JSON.stringify(name)})\n${weights}`;
};

export function Save({ store, state, id, queries, keys }: { store: Store; state: State; id: HeadId; queries: string[]; keys: string[] }) {
  const [said, setSaid] = useState("");
  const head = headOf(state.pass!, id)!;
  const file = `head-${head.name}`;
  const drawing = (grid: Grid): Picture => ({
    title: `${state.name}, head ${head.name}${state.by === "norm" ? ", by norm" : ""}`, grid, rows: queries.map(shownToken), cols: keys.map(shownToken), hidden: (r, c) => Number.isNaN(at(grid, r, c)), scale: state.scale, top: topOf(state.pass!, id),
  });
  const choose = async (what: string): Promise<void> => {
    setSaid("");
    if (what === "Python") return void toClipboard(python(state, id)).then((copied) => setSaid(copied ? "copied" : "this browser keeps its clipboard closed"));
    if (what === "heads") return save(new Blob([JSON.stringify(state.pass!.heads, null, 1)], { type: "application/json" }), "heads.json");
    const { grid } = await store.map(id, [0, queries.length], [0, keys.length], Math.max(queries.length, keys.length));
    if (what === "CSV") return save(new Blob([formats.CSV!("", grid)], { type: "text/csv" }), `${file}.csv`);
    if (Math.max(grid.rows, grid.cols) > mostCells) return setSaid(`more than ${mostCells} words are too many for a picture with words: attend show draws them`);
    return what === "SVG" ? saveSvg(drawing(grid), file) : savePng(drawing(grid), file);
  };
  return (
    <span class="save">
      <select aria-label="Save or copy" value="" onChange={(event) => { void choose(event.currentTarget.value); event.currentTarget.value = ""; }}>
        <option value="" disabled>Save…</option>
        <option value="SVG">the map as SVG</option>
        <option value="PNG">the map as PNG</option>
        <option value="CSV">its numbers as CSV</option>
        <option value="heads">all heads' scores as JSON</option>
        <option value="Python">copy as Python</option>
      </select>
      <span role="status">{said}</span>
    </span>
  );
}
