// What emscripten writes beside the module (page/engine/).
declare module "attend-engine" {
  const createModule: (options: { wasmBinary: Uint8Array; locateFile: (name: string) => string }) => Promise<EngineModule>;
  export default createModule;
}

interface EngineModule {
  HEAPU8: Uint8Array;
  _malloc(size: number): number;
  _free(at: number): void;
  _attend_explain(request: number): number;
  _attend_presets(): number;
  _attend_defaults(): number;
  lengthBytesUTF8(text: string): number;
  stringToUTF8(text: string, at: number, size: number): void;
  UTF8ToString(at: number): string;
}
