// The page: the sentence and its switches, the rail of steps, the step's matrices, and how the selected number comes about.
import { flushSync } from "preact/compat";
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import type { Scale } from "./colour";
import { paint, shareRgb } from "./colour";
import { Controls } from "./controls";
import { toClipboard } from "./copy";
import type { Engine, Request, Trace } from "./engine";
import { at, gridOf, headsOf, isHidden, isMultiHead } from "./grid";
import { addressInFull, isEmbedded } from "./language";
import { Languages } from "./languages";
import { roam, tabOf } from "./roving";
import type { Action, State } from "./state";
import { firstState, fromHash, hashOf, reducer, selectionOf, topOf } from "./state";
import { stepsOf } from "./steps";
import { Signs } from "./steps/step";
import type { Step, StepProps } from "./steps/step";
import { Why } from "./why";
import { say } from "./words";
import { sayLesson } from "./words/lesson";

function Thumbnail({ trace, head, scale, top }: { trace: Trace; head: number; scale: Scale; top: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const weights = gridOf(trace, "weights", head);
    paint(canvas.current!, weights.rows, weights.cols, (i, j) => (isHidden(trace, i, j) ? [138, 147, 160] : shareRgb(at(weights, i, j) / top, scale)));
  }, [trace, head, scale, top]);
  return <canvas ref={canvas} aria-hidden="true" />;
}

function Heads({ state, dispatch }: { state: State; dispatch: (action: Action) => void }) {
  if (!isMultiHead(state.trace)) return null;
  return (
    <div class="heads" role="group" aria-label={sayLesson.page.heads} onKeyDown={roam}>
      {Array.from({ length: headsOf(state.trace) }, (_, head) => (
        <button type="button" key={head} aria-pressed={head === state.head} tabIndex={tabOf(head === state.head)} onClick={() => dispatch({ do: "head", head })}>
          <Thumbnail trace={state.trace} head={head} scale={state.scale} top={topOf(state)} /> {say.head(head)}
        </button>
      ))}
    </div>
  );
}

function Rail({ steps, now, dispatch }: { steps: Step[]; now: Step; dispatch: (action: Action) => void }) {
  const place = steps.indexOf(now);
  const current = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [row, button] = [list.current, current.current];
    // Sideways alone: the page stays where it is read.
    if (row && button) row.scrollLeft = button.offsetLeft - row.offsetLeft - (row.clientWidth - button.offsetWidth) / 2;
    if (list.current?.contains(document.activeElement)) current.current?.focus(); // the keys go on from here
  }, [now]);
  const go = (to: number) => dispatch({ do: "step", step: steps[to]!.id });
  return (
    <nav class="rail" aria-label={sayLesson.page.steps}>
      <button type="button" class="turn" tabIndex={-1} disabled={place === 0} onClick={() => go(place - 1)} aria-label={sayLesson.page.previous}>←</button>
      <ol ref={list}>
        {steps.map((step, number) => (
          <li key={step.id}>
            <button type="button" ref={step === now ? current : undefined} tabIndex={tabOf(step === now)} aria-current={step === now ? "step" : undefined} onClick={() => go(number)}><i>{number + 1}</i> {step.name}</button>
          </li>
        ))}
      </ol>
      <button type="button" class="turn" tabIndex={-1} disabled={place === steps.length - 1} onClick={() => go(place + 1)} aria-label={sayLesson.page.next}>→</button>
    </nav>
  );
}

// Keys work where they mean nothing else: not in fields, and Space not on a button.
const isField = (target: EventTarget | null): boolean => target instanceof Element && target.closest("input, select, textarea") !== null;
const isPressed = (target: EventTarget | null): boolean => target instanceof Element && target.closest("button, summary, a") !== null;

function useKeys(steps: Step[], now: Step, dispatch: (action: Action) => void) {
  // Keys may come faster than the page is drawn: the next one goes on from where the last one led.
  const reached = useRef(now);
  reached.current = now;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape") return dispatch({ do: "clear" });
      if (isField(event.target) || event.ctrlKey || event.altKey || event.metaKey) return;
      const forward = event.key === "ArrowRight" || (event.key === " " && !event.shiftKey && !isPressed(event.target));
      const back = event.key === "ArrowLeft" || (event.key === " " && event.shiftKey && !isPressed(event.target));
      if (!forward && !back) return;
      event.preventDefault();
      const to = steps[steps.indexOf(reached.current) + (forward ? 1 : -1)];
      if (!to) return;
      reached.current = to;
      dispatch({ do: "step", step: to.id });
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  });
}

// The hash follows the state, and the state a hash that the reader writes. A notebook's frame has no history to write to.
function useHash(state: State, defaults: Request, dispatch: (action: Action) => void) {
  const hash = hashOf(state, defaults);
  useEffect(() => {
    try {
      if (location.hash !== hash) history.replaceState(null, "", hash);
    } catch {
      // The page works without.
    }
  }, [hash]);
  useEffect(() => {
    const onHashChange = () => {
      const { request, place } = fromHash(location.hash);
      if (place.opening) dispatch({ do: "opening" });
      else if (Object.keys(request).length > 0) dispatch({ do: "ask", request });
      if (place.step) dispatch({ do: "step", step: place.step });
      if (place.head !== undefined) dispatch({ do: "head", head: place.head });
      dispatch({ do: "lock", cursor: { i: place.i, j: place.j } });
    };
    addEventListener("hashchange", onHashChange);
    return () => removeEventListener("hashchange", onHashChange);
  }, []);
  return hash;
}

function Stage({ step, p, number }: { step: Step; p: StepProps; number: number }) {
  const formula = step.formula?.(p);
  return (
    <main id="step" tabIndex={-1}>
      <header class="step">
        <h2><i>{number}</i> {step.title}</h2>
        <div class="words">{step.text(p)}</div>
        {formula && <p class="formula">{formula.text} <small>{formula.shapes}</small></p>}
      </header>
      {step.perHead && <Heads state={p.state} dispatch={p.dispatch} />}
      <div class={`stage ${step.id}`}>{step.stage(p)}</div>
      {step.legend ? step.legend(p) : <Signs />}
    </main>
  );
}

// What is worked out. Beside the matrices; on a narrow screen a sheet at its lower edge, so that a number that was touched
// and how it comes about are seen together. The sheet opens by itself once something is touched, and folds.
function Worked({ step, p, printing }: { step: Step; p: StepProps; printing: boolean }) {
  const [asked, setAsked] = useState<boolean | null>(null);
  const touched = p.state.locked.on !== undefined;
  const open = printing || (asked ?? touched);
  const sheet = useRef<HTMLElement>(null);
  // What was touched must not lie under the sheet.
  useEffect(() => {
    const cell = [...document.querySelectorAll<HTMLElement>(".matrix")].find(({ dataset }) => dataset.name === p.state.locked.on)?.querySelector("td.cell");
    if (!cell || getComputedStyle(sheet.current!).position !== "sticky") return;
    const below = cell.getBoundingClientRect().bottom + 8 - sheet.current!.getBoundingClientRect().top;
    if (below > 0) scrollBy({ top: below });
  }, [p.state.locked, open]);
  return (
    <section class={open ? "worked" : "worked folded"} ref={sheet}>
      <button type="button" class="fold" aria-expanded={open} onClick={() => setAsked(!open)}>{open ? sayLesson.page.fold : sayLesson.page.workedOut}</button>
      {step.worked(p)}
    </section>
  );
}

// On paper nobody goes from step to step: all of them stand there, with what is worked out.
function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    // The browser lays the paper out as soon as the listener returns.
    const on = () => flushSync(() => setPrinting(true));
    const off = () => setPrinting(false);
    addEventListener("beforeprint", on);
    addEventListener("afterprint", off);
    return () => {
      removeEventListener("beforeprint", on);
      removeEventListener("afterprint", off);
    };
  }, []);
  return printing;
}

const skipTo = (event: Event): void => {
  event.preventDefault();
  document.getElementById("step")!.focus();
};

export function App({ engine, embedded }: { engine: Engine; embedded: string }) {
  const [state, dispatch] = useReducer<State, Action, null>(reducer(engine), null, () => firstState(engine, embedded, location.hash));
  const { trace } = state;
  const steps = stepsOf(trace);
  const step = steps.find(({ id }) => id === state.step) ?? steps[0]!;
  const p: StepProps = { state, trace, head: state.head, sel: selectionOf(state), dispatch };
  useKeys(steps, step, dispatch);
  // A link leads to what it shows; whoever opens the file itself begins at the beginning.
  const [why, setWhy] = useState(() => !isEmbedded && /^#?$/.test(location.hash));
  const hash = useHash(state, engine.defaults, dispatch);
  const first = useRef(hash); // while nothing has changed, another language begins at the beginning, too
  const printing = usePrinting();
  useEffect(() => { document.title = sayLesson.page.title(String(trace.made.text)); }, [trace]);
  const { presets } = engine;
  return (
    <div class={isEmbedded ? "page embed" : "page"}>
      <a class="skip" href="#step" onClick={skipTo}>{sayLesson.page.skip}</a>
      {!isEmbedded && <header class="top">
        <h1>attend <span>{sayLesson.page.subtitle}</span></h1>
        <Languages label={sayLesson.page.language} hash={why && hash === first.current ? "" : hash} />
        {!why && <button type="button" class="quiet" onClick={() => setWhy(true)}>{sayLesson.page.why}</button>}
        <button type="button" class="quiet" onClick={() => void toClipboard(location.href.replace(/#.*$/, "") + hash)}>{sayLesson.page.copyLink}</button>
      </header>}
      {why && <Why onClose={() => setWhy(false)} onSteps={() => { setWhy(false); dispatch({ do: "opening" }); }} />}
      <Controls state={state} presets={presets} dispatch={dispatch} />
      {trace.preset && <p class="lesson"><b>{sayLesson.page.document(presets.find(({ name }) => name === trace.preset)!.document)}</b> {(sayLesson.lessons as Record<string, string>)[trace.preset]}</p>}
      <Rail steps={steps} now={step} dispatch={dispatch} />
      {(printing ? steps : [step]).map((each) => (
        <div class="columns" key={printing ? each.id : ""}>
          <Stage step={each} p={p} number={steps.indexOf(each) + 1} />
          <aside aria-label={sayLesson.page.workedOut} tabIndex={0}>
            <Worked step={each} p={p} printing={printing} />
            {/* Another trace, head or step is another question. */}
            <div key={JSON.stringify([each.id, state.head, trace.preset, trace.model, trace.made])}>{each.exercise?.(p)}</div>
          </aside>
        </div>
      ))}
      {isEmbedded
        ? <p class="in-full"><a href={addressInFull(hash)} target="_blank" rel="noopener">{sayLesson.page.inFull}</a></p>
        : <footer><p>{sayLesson.page.footer(trace.model !== undefined)}</p></footer>}
    </div>
  );
}
