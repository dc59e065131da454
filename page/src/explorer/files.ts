// What the reader gives: a .gguf file, a recording, or a folder as Hugging Face has it. It stays on this machine.
import type { GivenFile } from "./protocol";
import type { Store } from "./store";

// Of a folder, what a model is opened from. Others (weights of other programs, pictures) may be large.
const isPart = (name: string): boolean => /\.(json|txt|model|safetensors|jinja)$/.test(name) && !/(^|\/)\./.test(name);

interface Named {
  path: string; // "folder/config.json", or "file.gguf"
  file: File;
}

const given = ({ path, file }: Named): GivenFile => ({ name: `/${path}`, bytes: file.size, from: file });

const openFiles = async (store: Store, named: Named[]): Promise<void> => {
  const single = named.find(({ path }) => /\.gguf$/i.test(path));
  const recording = named.find(({ path }) => path.endsWith(".attend"));
  if (single) return store.openModel(single.file.name, [{ ...given(single), name: `/${single.file.name}` }], `/${single.file.name}`);
  if (recording) return store.openRecording(recording.file.name, { ...given(recording), name: `/${recording.file.name}` });
  const lens = named.length === 1 && store.state.info ? named.find(({ path }) => /\.safetensors$/i.test(path)) : undefined;
  if (lens) return store.openJacobian({ ...given(lens), name: `/${lens.file.name}` });
  const config = named.filter(({ path }) => /(^|\/)config\.json$/.test(path)).sort((a, b) => a.path.length - b.path.length)[0];
  if (!config || !config.path.includes("/"))
    return store.set({ error: "expected a .gguf file, a recording (.attend), or a model's whole folder with its config.json, tokenizer.json and .safetensors files" });
  const folder = config.path.slice(0, config.path.lastIndexOf("/"));
  const parts = named.filter(({ path }) => path.startsWith(`${folder}/`) && isPart(path)).map(({ path, file }) => ({ path: `model${path.slice(folder.length)}`, file }));
  return store.openModel(folder.split("/").at(-1)!, parts.map(given), "/model");
};

// The files of what was dropped, folders with all that is in them.
const inside = async (entry: FileSystemEntry): Promise<Named[]> => {
  if (entry.isFile) return [{ path: entry.fullPath.slice(1), file: await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)) }];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const all: FileSystemEntry[] = [];
  // A browser gives a hundred at a time.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    all.push(...some);
  }
  return (await Promise.all(all.map(inside))).flat();
};

export const openDropped = async (store: Store, transfer: DataTransfer): Promise<void> => {
  const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  return openFiles(store, (await Promise.all(entries.map(inside))).flat());
};
export const openPicked = (store: Store, list: FileList): Promise<void> =>
  openFiles(store, Array.from(list, (file) => ({ path: file.webkitRelativePath || file.name, file })));
