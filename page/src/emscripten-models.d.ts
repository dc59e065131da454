// What emscripten writes beside the module for models (page/engine/models.cpp).
declare module "attend-models" {
  const createModule: (options: { wasmBinary: Uint8Array; locateFile: (name: string) => string }) => Promise<ModelsModule>;
  export default createModule;
}

interface ModelsModule {
  HEAPU8: Uint8Array;
  _malloc(size: number): number;
  _free(at: number): void;
  _attend_file(name: number, size: number): number;
  _attend_model(request: number): number;
  lengthBytesUTF8(text: string): number;
  stringToUTF8(text: string, at: number, size: number): void;
  UTF8ToString(at: number): string;
}
