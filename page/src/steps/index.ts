// The lesson, in its order.
import type { Trace } from "../engine";
import { context, heads, output } from "./context";
import { picture } from "./picture";
import { projections } from "./projections";
import { mask, scale, scores } from "./scores";
import { softmax } from "./softmax";
import type { Step } from "./step";
import { embeddings, positions, words } from "./words";

const steps: Step[] = [picture, words, embeddings, positions, projections, scores, scale, mask, softmax, context, heads, output];

export const stepsOf = (trace: Trace): Step[] => steps.filter(({ when }) => when?.(trace) ?? true);
