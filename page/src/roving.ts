// A group of buttons with one Tab stop: arrows, Home and End go from one to another, and choose what they reach. Its
// buttons have tabIndex={tabOf(it is the one that is chosen)}.
export const tabOf = (chosen: boolean): 0 | -1 => (chosen ? 0 : -1);

const turns: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export const roam = (event: KeyboardEvent): void => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const buttons = [...(event.currentTarget as Element).querySelectorAll("button")];
  const from = buttons.indexOf(document.activeElement as HTMLButtonElement);
  const to = event.key === "Home" ? 0 : event.key === "End" ? buttons.length - 1 : event.key in turns ? from + turns[event.key]! : null;
  if (from < 0 || to === null) return;
  event.preventDefault();
  event.stopPropagation(); // arrows change the step elsewhere
  const next = buttons[Math.min(Math.max(to, 0), buttons.length - 1)]!;
  next.focus();
  next.click();
};
