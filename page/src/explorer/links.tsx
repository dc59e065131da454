// Lines from each query to the keys that it gives most to; of one query, all that can be seen.
import type { Grid } from "../grid";
import { at } from "../grid";
import { shownToken } from "./model";
import type { Store } from "./store";

interface Line {
  query: number;
  key: number;
  weight: number;
}
const ofEach = 3; // lines of a query
const most = 300;
const least = 0.01; // thinner ones can't be seen

// The strongest of each query, and what share of all they show. A sink takes most of its head, and would hide the rest.
const linesOf = (map: Grid, sink: number | null): { lines: Line[]; share: number } => {
  const all: Line[] = [];
  let total = 0;
  for (let query = 0; query < map.rows; ++query) {
    const row = Array.from({ length: map.cols }, (_, key) => ({ query, key, weight: at(map, query, key) })).filter(({ weight }) => weight > 0);
    total += row.reduce((sum, { weight }) => sum + weight, 0);
    all.push(...row.filter(({ key, weight }) => key !== sink && weight >= least).sort((a, b) => b.weight - a.weight).slice(0, ofEach));
  }
  const lines = all.sort((a, b) => b.weight - a.weight).slice(0, most);
  return { lines, share: total > 0 ? lines.reduce((sum, { weight }) => sum + weight, 0) / total : 0 };
};

const step = 22; // pixels of a word

export function Links({ store, map, top, queries, keys, query, sink, written }: { store: Store; map: Grid; top: number; queries: string[]; keys: string[]; query: number; sink: number | null; written: number }) {
  if (map.rows !== queries.length || map.cols !== keys.length) return <p>{queries.length} words are too many for lines; the map shows them.</p>;
  const { lines, share } = linesOf(map, sink);
  const height = Math.max(queries.length, keys.length) * step + 8;
  const [left, right, width] = [190, 410, 600];
  const y = (place: number) => place * step + step / 2 + 4;
  const Word = ({ token, place, of }: { token: string; place: number; of: "query" | "key" }) => (
    <text
      x={of === "query" ? left - 8 : right + 8} y={y(place)} text-anchor={of === "query" ? "end" : "start"} dominant-baseline="central" class={[of === "query" && place === query && "on", place >= written && "written"].filter(Boolean).join(" ") || undefined}
      onClick={() => store.lock(of === "query" ? { query: place, key: null } : { key: place })}
    >
      {[...shownToken(token)].slice(0, 18).join("")}
    </text>
  );
  return (
    <figure class="links">
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Lines from queries to keys: ${lines.slice(0, 5).map((line) => `${queries[line.query]} to ${keys[line.key]}, ${line.weight.toFixed(2)}`).join("; ")}`} data-links={lines.length}>
        {lines.map((line) => (
          <line
            key={`${line.query} ${line.key}`} x1={left} x2={right} y1={y(line.query)} y2={y(line.key)} class={line.query === query ? "on" : undefined}
            stroke-width={line.query === query ? 3 : 2} stroke-opacity={Math.min(1, 0.08 + (0.92 * line.weight) / top) * (line.query === query ? 1 : 0.7)} data-query={line.query} data-key={line.key} data-weight={line.weight}
          >
            <title>{`${queries[line.query]} → ${keys[line.key]}: ${line.weight.toFixed(3)}`}</title>
          </line>
        ))}
        {queries.map((token, place) => <Word key={`q${place}`} token={token} place={place} of="query" />)}
        {keys.map((token, place) => <Word key={`k${place}`} token={token} place={place} of="key" />)}
      </svg>
      <figcaption class="quiet">
        From each word on the left to up to {ofEach} words on the right, above {least}: these show {Math.round(share * 100)} % of what the head gives.
        {sink !== null && <> Lines to <bdi>{shownToken(keys[sink]!)}</bdi>, the head's sink, are left out.</>}
      </figcaption>
    </figure>
  );
}
