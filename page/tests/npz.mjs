// The arrays of an .npz file as NumPy's savez writes it (zip, f32 and i64, C order): {name: {shape, values}}.
import { readFileSync } from "node:fs";
import { inflateRawSync } from "node:zlib";

export function npy(bytes) {
  const start = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString("latin1", 10, start);
  const type = /'descr': '([^']+)'/.exec(header)[1];
  const shape = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((size) => size.trim()).map(Number);
  const count = shape.reduce((product, size) => product * size, 1);
  const element = { "<f4": (i) => bytes.readFloatLE(start + 4 * i), "<i8": (i) => Number(bytes.readBigInt64LE(start + 8 * i)) }[type];
  return { shape, values: Array.from({ length: count }, (_, i) => element(i)) };
}

export function readNpz(path) {
  const bytes = readFileSync(path);
  const arrays = {};
  const end = bytes.lastIndexOf("PK\x05\x06", undefined, "latin1");
  let at = bytes.readUInt32LE(end + 16);
  for (let left = bytes.readUInt16LE(end + 10); left > 0; --left) {
    const [deflated, size, name] = [bytes.readUInt16LE(at + 10) === 8, bytes.readUInt32LE(at + 20), bytes.readUInt16LE(at + 28)];
    const local = bytes.readUInt32LE(at + 42);
    const data = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    const member = bytes.subarray(data, data + size);
    arrays[bytes.toString("utf8", at + 46, at + 46 + name).replace(/\.npy$/, "")] = npy(deflated ? inflateRawSync(member) : member);
    at += 46 + name + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return arrays;
}
