// How a page begins, of what its file holds.
export const content = (id: string): string => document.getElementById(id)!.textContent ?? "";
// What may be large leaves the page's own memory: the browser keeps it.
export const taken = (id: string): Blob => {
  const blob = new Blob([content(id)]);
  document.getElementById(id)!.remove();
  return blob;
};

// What the file shows without a script stays until the engine runs: a browser that can't run it loses nothing.
export const start = async (cannotRun: (error: string) => string, run: (shown: HTMLElement) => Promise<void>): Promise<void> => {
  const shown = document.getElementById("static")!;
  try {
    await run(shown);
  } catch (error) {
    const note = document.createElement("p");
    note.className = "problem";
    note.textContent = cannotRun(String(error));
    shown.prepend(note);
  }
};
