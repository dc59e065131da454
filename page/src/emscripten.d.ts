// What emscripten writes beside the modules (page/engine/).
interface EmscriptenModule {
  HEAPU8: Uint8Array;
  _malloc(size: number): number;
  _free(at: number): void;
  lengthBytesUTF8(text: string): number;
  stringToUTF8(text: string, at: number, size: number): void;
  UTF8ToString(at: number): string;
}
interface EngineModule extends EmscriptenModule {
  _attend_explain(request: number): number;
  _attend_presets(): number;
  _attend_defaults(): number;
}
interface ModelsModule extends EmscriptenModule {
  _attend_file(name: number, size: number): number;
  _attend_more(name: number, size: number): number;
  _attend_model(request: number): number;
}
type Create<Module> = (options: { wasmBinary: Uint8Array; locateFile: (name: string) => string; progress?: (share: number) => void }) => Promise<Module>;

declare module "attend-engine" {
  const createModule: Create<EngineModule>;
  export default createModule;
}
declare module "attend-models" {
  const createModule: Create<ModelsModule>;
  export default createModule;
}
