// The worker, as promises: one order after the other.
import type { Tensor } from "../memory";
import { EngineError } from "../error";
import type { FromWorker, GivenFile, Order } from "./protocol";

interface Waiting {
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
  progress?: ((share: number) => void) | undefined;
}

export type Answered<T> = T & { tensors: Record<string, Tensor> };

export class Client {
  private readonly worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;

  constructor(script: string) {
    this.worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.take(data);
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting.values()) reject(new EngineError(`the worker failed: ${event.message}`));
      this.waiting.clear();
    };
  }

  start(module: Blob): Promise<unknown> {
    return this.order({ start: module });
  }
  // Files, and the request that opens one of them. Where it rejects, what was open is open still.
  open<T>(files: GivenFile[], request: { do: string; path: string; item?: number }, progress: (share: number) => void): Promise<Answered<T>> {
    return this.order({ open: files, ask: request }, progress) as Promise<Answered<T>>;
  }
  // A file beside what is open, and the request that reads it.
  more<T>(file: GivenFile, request: { do: string; path: string }): Promise<Answered<T>> {
    return this.order({ more: file, ask: request }) as Promise<Answered<T>>;
  }
  // Rejects with EngineError and the library's words.
  ask<T>(request: { do: string } & Record<string, unknown>, progress?: (share: number) => void): Promise<Answered<T>> {
    return this.order({ ask: request }, progress) as Promise<Answered<T>>;
  }

  private order(order: Order, progress?: (share: number) => void): Promise<unknown> {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, progress });
      this.worker.postMessage({ ...order, id });
    });
  }

  private take(data: FromWorker): void {
    const waiting = this.waiting.get(data.id);
    if (!waiting) return;
    if ("progress" in data) return waiting.progress?.(data.progress);
    this.waiting.delete(data.id);
    if ("error" in data) waiting.reject(new EngineError(data.error.replace(/^model: /, "")));
    else waiting.resolve(data.answer);
  }
}
