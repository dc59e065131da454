// The sentence and its switches.
import type { Preset, Request } from "./engine";
import type { Action, State } from "./state";
import { changed } from "./state";
import { say } from "./words";
import { sayLesson } from "./words/lesson";

interface Props {
  state: State;
  presets: Preset[];
  dispatch: (action: Action) => void;
}

const Switch = ({ label, on, disabled, onChange }: { label: string; on: boolean; disabled?: boolean; onChange: (on: boolean) => void }) => (
  <label class="switch"><input type="checkbox" role="switch" checked={on} disabled={disabled} onChange={(event) => onChange(event.currentTarget.checked)} /> {label}</label>
);

function Size({ label, value, least, most, optional, disabled, onChange }: {
  label: string;
  value: number | null;
  least: number;
  most: number;
  optional?: string; // what no number means
  disabled?: boolean;
  onChange: (value: number | null) => void;
}) {
  return (
    <label class="size">
      {label}{" "}
      <input
        type="number" min={least} max={most} value={value ?? ""} placeholder={optional} disabled={disabled}
        onInput={(event) => {
          const text = event.currentTarget.value;
          if (text === "" && optional) onChange(null);
          const size = Number(text);
          if (text !== "" && Number.isInteger(size) && size >= least && size <= most) onChange(size);
        }}
      />
    </label>
  );
}

// Words are split at spaces, which Chinese and Japanese do without.
const isSpaceless = (text: string): boolean => !/\s/u.test(text.trim()) && /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]{2}/u.test(text);
// What is no word, such as a full stop, stays with the word before it.
const spaced = (text: string): string =>
  Array.from(new Intl.Segmenter(undefined, { granularity: "word" }).segment(text.trim()), ({ segment, isWordLike }, place) => (isWordLike && place > 0 ? ` ${segment}` : segment)).join("");

function Spaceless({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  if (!isSpaceless(text)) return null;
  return (
    <p class="spaceless" role="status">
      {sayLesson.controls.spaceless} {"Segmenter" in Intl && <button type="button" onClick={() => onChange(spaced(text))}>{sayLesson.controls.putSpaces}</button>}
    </p>
  );
}

function Sentences({ state, dispatch }: Omit<Props, "presets">) {
  const { made } = state.trace;
  const text = state.request.text ?? made.text ?? "";
  const second = state.request.second_text ?? made.second_text;
  const ask = (change: Request) => dispatch({ do: "ask", request: changed(state, change) });
  return (
    <div class="sentences">
      <label>
        <span class="sr">{sayLesson.controls.sentence}</span>
        <textarea class={text.length > 120 ? "text long" : "text"} rows={1} dir="auto" spellcheck={false} autocomplete="off" value={text} onInput={(event) => ask({ text: event.currentTarget.value })} />
      </label>
      <Spaceless text={text} onChange={(spacedText) => ask({ text: spacedText })} />
      {state.trace.model !== undefined && (
        <p class="own-numbers">
          {sayLesson.controls.model}{" "}
          {state.back && <button type="button" class="quiet" onClick={() => dispatch({ do: "ask", request: state.back! })}>{sayLesson.controls.back}</button>}
        </p>
      )}
      {second !== null && second !== undefined && (
        <label class="second">
          <span>{sayLesson.controls.second}</span>
          <textarea class="text" rows={1} dir="auto" spellcheck={false} autocomplete="off" value={second} onInput={(event) => ask({ second_text: event.currentTarget.value })} />
        </label>
      )}
      <Spaceless text={second ?? ""} onChange={(spacedText) => ask({ second_text: spacedText })} />
      <p class="problem" role="alert">{state.error}</p>
    </div>
  );
}

const opening = "MiniLM"; // the model of that trace

export function Controls({ state, presets, dispatch }: Props) {
  const { trace } = state;
  const made = { ...trace.made, ...state.request } as Required<Request>;
  const cross = (made.second_text ?? null) !== null || "embeddings_2" in trace.tensors;
  const ask = (change: Request) => dispatch({ do: "ask", request: changed(state, change) });
  return (
    <section class="controls" aria-label={sayLesson.controls.section}>
      <Sentences state={state} dispatch={dispatch} />
      <div class="switches">
        <label class="preset">
          <span class="sr">{sayLesson.controls.example}</span>
          <select value={trace.preset ?? trace.model ?? ""} onChange={(event) => dispatch(event.currentTarget.value === opening ? { do: "opening" } : { do: "ask", request: { preset: event.currentTarget.value } })}>
            <option value={opening}>{sayLesson.controls.opening}</option>
            <option value="" disabled>{sayLesson.controls.own}</option>
            {presets.map(({ name, document, summary }) => <option value={name} key={name}>{sayLesson.controls.preset(name, summary, document)}</option>)}
          </select>
        </label>
        <Size label={say.options.heads} value={made.heads === 0 ? 1 : made.heads} least={1} most={16} onChange={(heads) => ask({ heads: heads === 1 ? 0 : heads! })} />
        <Switch label={say.options.causal} on={made.causal} disabled={cross} onChange={(causal) => ask({ causal })} />
        <Size label={say.options.window} value={made.window} least={0} most={200} optional={sayLesson.controls.all} disabled={cross} onChange={(window) => ask({ window })} />
        <Switch label={say.options.positions} on={made.positions} onChange={(positions) => ask({ positions })} />
        <Switch label={say.options.scale} on={made.scale} onChange={(scale) => ask({ scale })} />
        <Switch label={say.options.second_text} on={cross} onChange={(on) => ask({ second_text: on ? "le chat est assis" : null })} />
        <details>
          <summary>{sayLesson.controls.more}</summary>
          <div class="more">
            <label class="size">
              {say.options.weights}{" "}
              <select value={made.weights} onChange={(event) => ask({ weights: event.currentTarget.value as "linear" | "uniform" })}>
                <option value="linear">{sayLesson.controls.linear}</option>
                <option value="uniform">{sayLesson.controls.uniform}</option>
              </select>
            </label>
            <Size label={say.options.embedding_size} value={made.embedding_size} least={1} most={256} onChange={(embedding_size) => ask({ embedding_size: embedding_size! })} />
            <Size label={say.options.d_k} value={made.d_k} least={1} most={256} onChange={(d_k) => ask({ d_k: d_k! })} />
            <Size label={say.options.d_v} value={made.d_v} least={1} most={256} onChange={(d_v) => ask({ d_v: d_v! })} />
            <label class="size">
              {say.options.seed}{" "}
              <input type="text" inputMode="numeric" pattern="[0-9]*" value={made.seed} onInput={(event) => { if (/^\d{1,20}$/.test(event.currentTarget.value)) ask({ seed: event.currentTarget.value }); }} />
            </label>
          </div>
        </details>
        <Compare state={state} dispatch={dispatch} />
      </div>
    </section>
  );
}

// Keeps what is there, so that the next change is seen beside it.
function Compare({ state, dispatch }: Omit<Props, "presets">) {
  const kept = state.before;
  if (state.trace.model !== undefined) return null; // the switches lead to other numbers altogether
  return (
    <button
      type="button" aria-pressed={kept !== null} title={sayLesson.controls.keep}
      onClick={() => dispatch({ do: "compare", trace: kept ? null : state.trace })}
    >
      {kept ? sayLesson.controls.stop : sayLesson.controls.compare}
    </button>
  );
}
