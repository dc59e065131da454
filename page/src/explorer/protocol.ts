// What goes between the page and its worker. docs/page.md lists the requests; every answer's tensors come as copies.

// A file of a model or a recording, by the name that the module opens: of the reader's disk, or in the page as gzip in base64.
export interface GivenFile {
  name: string;
  bytes: number;
  from: Blob;
  isBase64?: boolean;
}

export type Order =
  | { start: Blob } // the module: gzip in base64
  | { open: GivenFile[]; ask: Record<string, unknown> } // in place of what is open, once the answer is there
  | { more: GivenFile; ask: Record<string, unknown> } // a file beside what is open
  | { ask: Record<string, unknown> };
export type ToWorker = Order & { id: number };

export type FromWorker =
  | { id: number; answer: unknown }
  | { id: number; error: string } // the library's words
  | { id: number; progress: number }; // the share that is done: of open, of the bytes that are there
