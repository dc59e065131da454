// Where attention stands in a block of a Transformer.
import { say } from "../words";

// x goes on along the upper line; each box on the lower one reads it and adds to it.
function Drawing() {
  const says = say.context.block;
  const [top, bottom] = [18, 62];
  const boxes: [x: number, width: number, text: string, here: boolean][] = [[28, 46, says.norm, false], [84, 74, says.attention, true], [198, 46, says.norm, false], [254, 46, "MLP", false]];
  const read = (from: number, through: number, to: number) => `M${from} ${top}V${bottom}H${through}M${through} ${bottom}H${to}V${top + 7}`;
  return (
    <svg viewBox="0 0 340 84" role="img" aria-label={says.drawing} class="block">
      <path d={`M12 ${top}H332m-5 -4l5 4l-5 4`} />
      <path d={read(20, 158, 174)} />
      <path d={read(190, 300, 316)} />
      {[174, 316].map((x) => <g key={x}><circle cx={x} cy={top} r="8" /><text x={x} y={top} text-anchor="middle" dominant-baseline="central">+</text></g>)}
      <text x="2" y={top} dominant-baseline="central">x</text>
      {boxes.map(([x, width, text, here]) => (
        <g key={x} class={here ? "here" : undefined}>
          <rect x={x} y={bottom - 14} width={width} height="28" rx="5" />
          <text x={x + width / 2} y={bottom} text-anchor="middle" dominant-baseline="central">{text}</text>
        </g>
      ))}
    </svg>
  );
}

export const Block = () => (
  <details class="growth">
    <summary>{say.context.block.title}</summary>
    <Drawing />
    <p class="formula">x := x + attention(norm(x))<br />x := x + MLP(norm(x))</p>
    <p>{say.context.block.first}</p>
    <p>{say.context.block.second}</p>
  </details>
);
