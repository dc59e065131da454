// What the library says of a request that it can't answer.
export class EngineError extends Error {}
