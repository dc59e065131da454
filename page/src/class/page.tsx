// An experiment: what is looked at, a prediction, what was computed, why, how to check it, and the page to look further in.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { isEmbedded, language } from "../language";
import { Languages } from "../languages";
import { Prediction } from "../prediction";
import { rightOf } from "./experiments";
import { figuresOf } from "./figures";
import type { Guided, Id, Index, Place } from "./numbers";
import type { Words } from "./words/en";

// Another page of the class, in the same language.
const pageIn = (file: string): string => (language === "en" ? file : `${file}?lang=${language}`);
const addressOf = ({ file, place }: Place, framed: boolean): string => {
  const fields = new URLSearchParams();
  if (language !== "en") fields.set("lang", language);
  if (framed) fields.set("embed", "1");
  return `${file}${fields.size > 0 ? `?${fields}` : ""}${place}`;
};

function Top({ words, children }: { words: Words; children?: ComponentChildren }) {
  return (
    <header class="top">
      <h1>attend <span>{words.name}</span></h1>
      {children}
      <Languages label={words.languages} hash={location.hash} />
    </header>
  );
}

export function IndexPage({ index, words }: { index: Index; words: Words }) {
  return (
    <div class="page class">
      <Top words={words} />
      <main>
        <p class="lead">{words.lead}</p>
        <ol class="experiments">
          {index.of.map((id) => <li key={id}><a href={pageIn(`${id}.html`)}><b>{words.guides[id].title}</b></a><p class="quiet">{words.guides[id].teaser}</p></li>)}
        </ol>
        <ul class="pages">
          {index.pages.map((file) => <li key={file}><a href={pageIn(file)}>{words.pages[file as keyof Words["pages"]]}</a></li>)}
        </ul>
        <Terms words={words} open />
        <p class="quiet">{words.offline}</p>
      </main>
    </div>
  );
}

// The words that the experiments use, for whoever begins with any of them.
const Terms = ({ words, open = false }: { words: Words; open?: boolean }) => (
  <details class="terms" open={open}>
    <summary>{words.terms.title}</summary>
    <dl>{words.terms.list.map(([term, meaning]) => [<dt key={term}>{term}</dt>, <dd key={meaning}>{meaning}</dd>])}</dl>
  </details>
);

// The page that an experiment opens loads when it is asked for: with a model in it, it has tens of megabytes.
function Further({ place, words, children }: { place: Place; words: Words; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <section class="further">
      <h3>{words.further}</h3>
      {children}
      <p class="quiet">{place.file.endsWith("-heads.html") ? words.recorded : place.file === "minilm.html" ? words.eightBits : words.live}</p>
      <p class="ways">
        {!open && <button type="button" onClick={() => setOpen(true)}>{words.here}</button>}
        <a href={addressOf(place, false)} target="_blank" rel="noopener">{words.alone}</a>
      </p>
      {open && <iframe src={addressOf(place, true)} title={words.further} />}
    </section>
  );
}

const titleOf = (id: Id, words: Words): string => words.guides[id].title;

export function ExperimentPage<I extends Id>({ guided, words }: { guided: Guided<I>; words: Words }) {
  const { id, of, numbers, opens, goes_on } = guided;
  // A link with #answer leads to the answer, for a teacher who comes back to it.
  const right = rightOf[id](numbers);
  const [chosen, choose] = useState<number | null>(location.hash === "#answer" ? right : null);
  const [guide, figures] = [words.guides[id], figuresOf[id]];
  const [before, after] = [of[of.indexOf(id) - 1], of[of.indexOf(id) + 1]];
  return (
    <div class="page class">
      {!isEmbedded && <Top words={words}><a href={pageIn("index.html")}>{words.all}</a></Top>}
      <main>
        <p class="quiet">{words.of(of.indexOf(id) + 1, of.length)}</p>
        <h2>{guide.title}</h2>
        {guide.setting(numbers)}
        <Terms words={words} />
        {figures.before?.(numbers, words)}
        <Prediction question={guide.question(numbers)} options={guide.options(numbers)} right={right} chosen={chosen} choose={choose} words={words.prediction} />
        {chosen !== null && (
          <div class="answer">
            <section><h3>{words.computed}</h3>{figures.after(numbers, words)}</section>
            <section><h3>{words.why}</h3>{guide.why(numbers)}</section>
            <section class="hand"><h3>{words.hand}</h3>{guide.hand(numbers)}</section>
            <Further place={goes_on ?? opens} words={words}>{guide.further(numbers, goes_on !== null)}</Further>
          </div>
        )}
        {!isEmbedded && (
          <nav class="turns" aria-label={words.all}>
            {before && <a href={pageIn(`${before}.html`)}>← {words.previous}: {titleOf(before, words)}</a>}
            {after && <a href={pageIn(`${after}.html`)}>{words.next}: {titleOf(after, words)} →</a>}
          </nav>
        )}
      </main>
    </div>
  );
}
