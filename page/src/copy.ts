// A matrix as text, every number as it is: the shortest decimal that reads back as the same f32.
import type { Grid } from "./grid";
import { rowOf } from "./grid";

export const shortest = (value: number): string => {
  if (!Number.isFinite(value)) return value === -Infinity ? "-inf" : String(value);
  for (let digits = 1; digits < 9; ++digits) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
};

const rowsOf = (grid: Grid, spell: (value: number) => string): string[] =>
  Array.from({ length: grid.rows }, (_, row) => Array.from(rowOf(grid, row), spell).join(", "));

const python = (value: number): string => (value === -Infinity ? 'float("-inf")' : shortest(value));
const cpp = (value: number): string => {
  if (value === -Infinity) return "-std::numeric_limits<float>::infinity()";
  const text = shortest(value);
  return /[.e]/.test(text) ? `${text}f` : `${text}.0f`;
};

export const formats: Record<string, (name: string, grid: Grid) => string> = {
  Python: (name, grid) => `${name} = [\n${rowsOf(grid, python).map((row) => `    [${row}],\n`).join("")}]\n`,
  NumPy: (name, grid) =>
    `${name} = numpy.array([\n${rowsOf(grid, (value) => python(value).replace('float("-inf")', "-numpy.inf"))
      .map((row) => `    [${row}],\n`)
      .join("")}], dtype=numpy.float32)\n`,
  "C++": (name, grid) =>
    `const attend::Tensor ${name} = attend::Tensor::from({${grid.rows}, ${grid.cols}}, {\n` +
    `${rowsOf(grid, cpp).map((row) => `    ${row}`).join(",\n")}});\n`,
  CSV: (_, grid) => rowsOf(grid, shortest).map((row) => `${row.replaceAll(", ", ",")}\n`).join(""),
};

// The clipboard is closed to some frames (a notebook's): then the text is selected in a field and copied from there.
export const toClipboard = async (text: string): Promise<boolean> => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
};
