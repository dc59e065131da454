// What was computed, drawn: rows of weights over their words, maps, bars, and small tables.
import type { ComponentChildren } from "preact";
import { shareColour, shareInk } from "../colour";
import { Looked } from "../looked";
import type { Id, Induction, Next, Numbers, Row } from "./numbers";
import { fixed, percent, shown } from "./numbers";
import type { Words } from "./words/en";

const paint = (share: number) => ({ background: shareColour(share, "sqrt"), color: shareInk(share, "sqrt") });

function Strip({ row: { tokens, weights }, query, caption }: { row: Row; query?: number; caption: string }) {
  return (
    <figure class="look">
      <figcaption>{caption}</figcaption>
      <Looked tokens={tokens.map(shown)} weights={weights} query={query} label={caption} percent={percent} />
    </figure>
  );
}

function Bars({ caption, next }: { caption: string; next: Next[] }) {
  const alike = ({ token }: Next) => next.filter((other) => shown(other.token) === shown(token)).length > 1;
  return (
    <figure class="bars">
      <figcaption>{caption}</figcaption>
      <dl>
        {next.map(({ token, probability }) => (
          <div key={token}>
            <dt><bdi>{alike({ token, probability }) ? token.replace(" ", "␣") : shown(token)}</bdi></dt>
            <dd data-probability={probability}><span style={{ width: `${probability * 100}%` }} /> {percent(probability)}</dd>
          </div>
        ))}
      </dl>
    </figure>
  );
}

function Map({ caption, rows, columns, weights, marked }: { caption: string; rows: string[]; columns: string[]; weights: number[][]; marked?: number }) {
  return (
    <figure class="map">
      <figcaption>{caption}</figcaption>
      <div class="wide" tabIndex={0} role="group" aria-label={caption}>
        <table>
          <thead><tr><td />{columns.map((token, key) => <th scope="col" key={key}><span>{shown(token)}</span></th>)}</tr></thead>
          <tbody>
            {weights.map((row, query) => (
              <tr key={query} class={query === marked ? "on" : undefined}>
                <th scope="row">{shown(rows[query]!)}</th>
                {row.map((weight, key) => <td key={key} style={paint(weight)} title={`${shown(rows[query]!)} → ${shown(columns[key]!)}: ${fixed(weight)}`}><span>{Math.round(weight * 100) || ""}</span></td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

function Table({ heads, rows }: { heads: string[]; rows: ComponentChildren[][] }) {
  return (
    <div class="wide" tabIndex={0} role="group" aria-label={heads.join(", ")}>
      <table class="list">
        <thead><tr>{heads.map((head) => <th scope="col" key={head}>{head}</th>)}</tr></thead>
        <tbody>{rows.map((row, n) => <tr key={n}>{row.map((cell, place) => <td key={place}>{cell}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

const most = ({ tokens, weights }: Row): string => tokens[weights.indexOf(Math.max(...weights))]!;
const names = ({ names }: Induction, { figure }: Words) => (
  <Table
    heads={[figure.text, figure.token, figure.alone, figure.after]}
    rows={names.map(({ after, token, probabilities: [alone, then] }) => [<q key="text">{after}</q>, <bdi key="token">{token}</bdi>, percent(alone), percent(then)])}
  />
);

// Before the prediction, and with its answer.
export const figuresOf: { [I in Id]: { before?: (numbers: Numbers[I], words: Words) => ComponentChildren; after: (numbers: Numbers[I], words: Words) => ComponentChildren } } = {
  paris: {
    before: (n, { figure }) => <Bars caption={figure.nextOf(n.text, figure.withAll)} next={n.before} />,
    after: (n, { figure }) => (
      <>
        <Bars caption={figure.nextOf(n.text, figure.without(n.head))} next={n.after} />
        <Strip caption={figure.row(shown(n.tokens.at(-1)!), n.head)} row={n} query={n.tokens.length - 1} />
        <Table
          heads={[figure.country, figure.capital, figure.withAll, figure.without(n.head)]}
          rows={n.capitals.map(({ country, capital, before, after }) => [country, capital, percent(before), percent(after)])}
        />
      </>
    ),
  },
  induction: {
    before: (n, { figure }) => <Bars caption={figure.nextOf(n.names[0]!.alone)} next={n.names[0]!.likeliest} />,
    after: (n, words) => (
      <>
        {names(n, words)}
        <Map caption={words.figure.map(n.head)} rows={n.tokens} columns={n.tokens} weights={n.weights} />
      </>
    ),
  },
  sink: {
    before: (n) => <ul class="texts">{n.texts.map((text) => <li key={text}><q>{text}</q></li>)}</ul>,
    after: (n, { figure }) => <Strip caption={figure.meanRow(shown(n.tokens.at(-1)!))} row={n} query={n.tokens.length - 1} />,
  },
  tired: {
    before: (n, { figure }) => <Strip caption={figure.row("it", n.head)} row={n.sentences[0]!} query={n.sentences[0]!.query} />,
    after: (n, { figure }) => (
      <>
        {n.sentences.slice(1).map((each) => <Strip key={each.text} caption={figure.given(each.meant, most(each))} row={each} query={each.query} />)}
      </>
    ),
  },
  mask: {
    before: (n, { figure }) => <Strip caption={figure.row(n.tokens[n.query]!, undefined, figure.unmasked)} row={n} query={n.query} />,
    after: (n, { figure }) => <Strip caption={figure.row(n.tokens[n.query]!, undefined, figure.masked)} row={{ tokens: n.tokens, weights: n.causal }} query={n.query} />,
  },
  "two-heads": {
    before: (n, { figure }) => <Strip caption={figure.row(n.tokens[n.query]!, n.heads[0]!.head)} row={{ tokens: n.tokens, weights: n.heads[0]!.weights }} query={n.query} />,
    after: (n, { figure }) => <Strip caption={figure.row(n.tokens[n.query]!, n.heads[1]!.head)} row={{ tokens: n.tokens, weights: n.heads[1]!.weights }} query={n.query} />,
  },
  translation: {
    before: (n) => <p class="written"><q>{n.source}</q> → <q>{n.written.slice(1, n.query + 1).map(shown).join(" ")} …</q></p>,
    after: (n, { figure }) => (
      <>
        <Strip caption={figure.row(shown(n.written[n.query]!), n.head)} row={n} />
        <Map caption={figure.map(n.head)} rows={n.written} columns={n.tokens} weights={n.matrix} marked={n.query} />
      </>
    ),
  },
  root: {
    before: (n) => <p class="written"><q>{n.text}</q></p>,
    after: (n, { figure }) => (
      <Table
        heads={[figure.size, figure.spread, figure.undivided, figure.divided]}
        rows={n.sizes.map(({ size, spread, without, with: divided }) => [size, fixed(spread, 2), fixed(without, 2), fixed(divided, 2)])}
      />
    ),
  },
};
