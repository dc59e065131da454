// Matrices that belong together stand side by side: where they don't fit as they are, their cells become smaller; where
// that is not enough, they stand below each other, each with its sign before it.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

const factors = [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.42, 0.35];

const fit = (element: HTMLElement): void => {
  if (!element.parentElement) return; // it is gone
  const room = element.parentElement.clientWidth;
  element.classList.add("fits");
  const fitsAt = (factor: number): boolean => {
    element.style.setProperty("--fit", String(factor));
    element.classList.toggle("small", factor < 1);
    return element.scrollWidth <= room;
  };
  // The first of the factors that fits, by halves: each try is a layout.
  let [least, most] = [0, factors.length];
  while (least < most) {
    const middle = least === 0 && most === factors.length ? 0 : (least + most) >> 1;
    if (fitsAt(factors[middle]!)) most = middle;
    else least = middle + 1;
  }
  if (least < factors.length) return void fitsAt(factors[least]!);
  element.classList.remove("fits", "small");
  element.style.setProperty("--fit", "1");
};

export function Together({ children, as = "row" }: { children: ComponentChildren; as?: "row" | "projections" }) {
  const host = useRef<HTMLDivElement>(null);
  const watch = useRef<{ observer: ResizeObserver; watched: WeakSet<Element> } | null>(null);
  // Called before a frame is drawn in which something changed its size: another step, other words, digits, the window.
  useLayoutEffect(() => {
    const element = host.current!;
    watch.current ??= { observer: new ResizeObserver(() => fit(element)), watched: new WeakSet() };
    const { observer, watched } = watch.current;
    for (const each of [element.parentElement!, ...element.querySelectorAll(".matrix")])
      if (!watched.has(each)) {
        watched.add(each);
        observer.observe(each);
      }
  });
  useLayoutEffect(() => () => watch.current?.observer.disconnect(), []);
  return <div class={`together ${as}`} ref={host}>{children}</div>;
}

// A matrix, or several below each other, with the sign that leads to it.
export const Operand = ({ sign, name, children }: { sign?: string; name?: string; children: ComponentChildren }) => (
  <div class={name ? `operand ${name}` : "operand"}>
    {sign && <span class="sign" aria-hidden="true">{sign}</span>}
    {children}
  </div>
);
