// The sentence and its switches.
import type { Preset, Request } from "./engine";
import type { Action, State } from "./state";
import { changed } from "./state";

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

function Sentences({ state, dispatch }: Omit<Props, "presets">) {
  const { made } = state.trace;
  const text = state.request.text ?? made.text ?? "";
  const second = state.request.second_text ?? made.second_text;
  const ask = (change: Request) => dispatch({ do: "ask", request: changed(state, change) });
  return (
    <div class="sentences">
      <label>
        <span class="sr">The sentence</span>
        <textarea class={text.length > 120 ? "text long" : "text"} rows={1} dir="auto" spellcheck={false} autocomplete="off" value={text} onInput={(event) => ask({ text: event.currentTarget.value })} />
      </label>
      {second !== null && second !== undefined && (
        <label class="second">
          <span>keys and values from</span>
          <textarea class="text" rows={1} dir="auto" spellcheck={false} autocomplete="off" value={second} onInput={(event) => ask({ second_text: event.currentTarget.value })} />
        </label>
      )}
      <p class="problem" role="alert">{state.error}</p>
    </div>
  );
}

export function Controls({ state, presets, dispatch }: Props) {
  const { trace } = state;
  const made = { ...trace.made, ...state.request } as Required<Request>;
  const cross = (made.second_text ?? null) !== null || "embeddings_2" in trace.tensors;
  const ask = (change: Request) => dispatch({ do: "ask", request: changed(state, change) });
  return (
    <section class="controls" aria-label="Sentence and switches">
      <Sentences state={state} dispatch={dispatch} />
      <div class="switches">
        <label class="preset">
          <span class="sr">An example of the documents</span>
          <select value={trace.preset ?? ""} onChange={(event) => dispatch({ do: "ask", request: { preset: event.currentTarget.value } })}>
            <option value="" disabled>your sentence</option>
            {presets.map(({ name, document, summary }) => <option value={name} key={name}>{name}: {summary} (document {document})</option>)}
          </select>
        </label>
        <Size label="heads" value={made.heads === 0 ? 1 : made.heads} least={1} most={16} onChange={(heads) => ask({ heads: heads === 1 ? 0 : heads! })} />
        <Switch label="causal" on={made.causal} disabled={cross} onChange={(causal) => ask({ causal })} />
        <Size label="window" value={made.window} least={0} most={200} optional="all" disabled={cross} onChange={(window) => ask({ window })} />
        <Switch label="positions" on={made.positions} onChange={(positions) => ask({ positions })} />
        <Switch label="scale" on={made.scale} onChange={(scale) => ask({ scale })} />
        <Switch label="second sentence" on={cross} onChange={(on) => ask({ second_text: on ? "le chat est assis" : null })} />
        <details>
          <summary>more</summary>
          <div class="more">
            <label class="size">
              weights{" "}
              <select value={made.weights} onChange={(event) => ask({ weights: event.currentTarget.value as "linear" | "uniform" })}>
                <option value="linear">as nn.Linear, around 0</option>
                <option value="uniform">uniform, 0 to 1</option>
              </select>
            </label>
            <Size label="embedding size" value={made.embedding_size} least={1} most={256} onChange={(embedding_size) => ask({ embedding_size: embedding_size! })} />
            <Size label="d_k" value={made.d_k} least={1} most={256} onChange={(d_k) => ask({ d_k: d_k! })} />
            <Size label="d_v" value={made.d_v} least={1} most={256} onChange={(d_v) => ask({ d_v: d_v! })} />
            <label class="size">
              seed{" "}
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
  return (
    <button
      type="button" aria-pressed={kept !== null} title="Keep these weights, to see the next change beside them"
      onClick={() => dispatch({ do: "compare", trace: kept ? null : state.trace })}
    >
      {kept ? "Stop comparing" : "Compare"}
    </button>
  );
}
