// The lesson's steps with this head's own numbers: queries and keys of real tokens, scores, softmax, context.
import { useEffect, useReducer, useState } from "preact/hooks";
import type { Trace } from "../engine";
import { language } from "../language";
import type { Tensor } from "../memory";
import { selectionOf } from "../state";
import type { Action, State as LessonState } from "../state";
import { context } from "../steps/context";
import { mask, scale, scores } from "../steps/scores";
import { softmax } from "../steps/softmax";
import type { Step, StepProps } from "../steps/step";
import { Signs } from "../steps/step";
import type { HeadId } from "./model";
import { shownToken } from "./model";
import type { State, Store } from "./store";

// Words that stand more than once have their place.
const named = (tokens: string[]): string[] => tokens.map((token, place) => (tokens.filter((other) => other === token).length > 1 ? `${shownToken(token)} ${place}` : shownToken(token)));

interface Made {
  tensors: Record<string, Tensor>;
  scale: number;
  others: string[]; // what else changes the scores
}

const traceOf = ({ tensors, scale: factor }: Made, queries: string[], keys: string[], focus: number): Trace => {
  const size = tensors.queries!.shape[1]!;
  const hidden = tensors.logits !== undefined;
  return {
    preset: null, model: "", title: "", tokens: queries, ids: [], tokens_2: [], ids_2: [], labels: named(queries), key_labels: named(keys), vocabulary_size: 0, focus, causal: hidden, weights_in_out: false, tensors,
    made: { text: "", second_text: null, seed: "0", embedding_size: size, d_k: size, d_v: tensors.values?.shape[1] ?? size, heads: 0, weights: "linear", causal: hidden, positions: false, scale: factor !== 1, window: null },
  };
};

// The lesson says "divided by √d_k": a layer that scales otherwise has no such step.
const isRoot = (size: number, factor: number): boolean => factor === 1 || Math.abs(factor * Math.sqrt(size) - 1) < 1e-6;
const stepsOf = (trace: Trace, made: Made): Step[] =>
  [scores, ...(isRoot(trace.made.d_k!, made.scale) ? [scale] : []), mask, softmax, ...(made.tensors.context ? [context] : [])].filter(({ when }) => when?.(trace) ?? true);

export function StepsView({ store, state, id, queries, keys, cell }: { store: Store; state: State; id: HeadId; queries: string[]; keys: string[]; cell: [number, number] }) {
  const [made, setMade] = useState<Made | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [now, setNow] = useState(scores.id);
  const { pass } = state;
  useEffect(() => {
    let asked = true;
    store.steps(id).then((answer) => { if (asked) setMade(answer), setProblem(null); }, (error: Error) => { if (asked) setProblem(error.message); });
    return () => { asked = false; };
  }, [pass, id[0], id[1]]);
  if (problem) return <p class="problem">{problem}</p>;
  if (!made || made.tensors.queries!.shape[0] !== queries.length) return <p class="quiet">computing</p>;
  if (made.others.length > 0) return <p>This layer also has {made.others.join(", ")}, which change the scores before the softmax: the lesson does not have these steps.</p>;
  return <Lesson key={id.join()} store={store} state={state} made={made} trace={traceOf(made, queries, keys, cell[0])} now={now} setNow={setNow} cell={cell} />;
}

function Lesson({ store, state, made, trace, now, setNow, cell }: { store: Store; state: State; made: Made; trace: Trace; now: string; setNow: (id: string) => void; cell: [number, number] }) {
  // Queries and keys are the explorer's selection; the number of a vector is this view's.
  const [own, dispatch] = useReducer<Pick<LessonState, "locked" | "hovered">, Action, null>(
    (last, action) => (action.do === "hover" ? { ...last, hovered: action.cursor } : action.do === "lock" ? { locked: { ...last.locked, ...action.cursor }, hovered: {} } : last),
    null, () => ({ locked: {}, hovered: {} }),
  );
  const steps = stepsOf(trace, made);
  const step = steps.find(({ id }) => id === now) ?? steps[0]!;
  const lesson: LessonState = {
    request: {}, trace, error: null, step: step.id, head: 0, scale: state.scale, before: null,
    locked: { ...own.locked, i: cell[0], j: cell[1] }, hovered: own.hovered,
  };
  const p: StepProps = {
    state: lesson, trace, head: 0, sel: selectionOf(lesson),
    dispatch: (action) => {
      if (action.do === "scale") return store.set({ scale: action.scale });
      dispatch(action);
      if (action.do === "lock" && (action.cursor.i !== undefined || action.cursor.j !== undefined)) store.lock({ ...(action.cursor.i !== undefined && { query: action.cursor.i }), ...(action.cursor.j !== undefined && { key: action.cursor.j }) });
    },
  };
  const formula = step.formula?.(p);
  return (
    <div class="lesson-steps" lang={language}>
      <nav aria-label="Steps">
        {steps.map((each, number) => <button type="button" key={each.id} aria-pressed={each === step} onClick={() => setNow(each.id)}>{number + 1} {each.name}</button>)}
      </nav>
      <h3>{step.title}</h3>
      <div class="words">{step.text(p)}</div>
      {formula && <p class="formula">{formula.text} <small>{formula.shapes}</small></p>}
      <div class={`stage ${step.id}`}>{step.stage(p)}</div>
      {step.legend ? step.legend(p) : <Signs />}
      <section class="worked">{step.worked(p)}</section>
    </div>
  );
}
