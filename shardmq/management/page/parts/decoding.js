// A body as people read it: JSON, MessagePack, text, or bytes in hexadecimal.

export const FORMS = ["text", "JSON", "MessagePack", "hex"];

const LIMIT = 64 * 1024;

// Returns {form, text}. Args: raw: bytes; properties: of the message; form: the one that was chosen, or null.
export function decoded(raw, properties, form) {
  const chosen = form ?? guess(raw, properties);
  try {
    if (chosen === "JSON") return { form: chosen, text: JSON.stringify(JSON.parse(utf8(raw)), null, 2) };
    if (chosen === "MessagePack") return { form: chosen, text: JSON.stringify(unpack(raw), shownValue, 2) };
    if (chosen === "text") return { form: chosen, text: new TextDecoder().decode(raw) };
  } catch (fault) {
    return { form: chosen, text: `It cannot be read as ${chosen}: ${fault.message}` };
  }
  return { form: "hex", text: hex(raw) };
}

const utf8 = (raw) => new TextDecoder("utf-8", { fatal: true }).decode(raw);

function guess(raw, properties) {
  const type = String(properties.content_type ?? "");
  if (type.includes("json")) return "JSON";
  if (type.includes("msgpack") || type.includes("messagepack")) return "MessagePack";
  try {
    const text = utf8(raw);
    if (/^\s*[[{]/.test(text)) {
      JSON.parse(text);
      return "JSON";
    }
    return "text";
  } catch (fault) {
    return fault instanceof SyntaxError ? "text" : "hex";
  }
}

function hex(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, LIMIT); at += 16) {
    const row = [...raw.subarray(at, at + 16)];
    const numbers = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${numbers.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

const shownValue = (_key, value) => (typeof value === "bigint" ? value.toString() : value instanceof Uint8Array ? `bytes ${hex(value)}` : value);

// MessagePack, as https://github.com/msgpack/msgpack/blob/master/spec.md has it.
export function unpack(raw) {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  let at = 0;
  const step = (size) => {
    at += size;
    if (at > raw.length) throw new Error("it ends too early");
    return at - size;
  };
  const bytes = (size) => raw.subarray(step(size), at);
  const text = (size) => utf8(bytes(size));
  const list = (size) => Array.from({ length: size }, () => value());
  const map = (size) => Object.fromEntries(Array.from({ length: size }, () => [String(value()), value()]));
  const size8 = () => view.getUint8(step(1));
  const size16 = () => view.getUint16(step(2));
  const size32 = () => view.getUint32(step(4));
  const extension = (size) => ({ extension: view.getInt8(step(1)), bytes: bytes(size) });
  const small = (number) => (number >= -Number.MAX_SAFE_INTEGER && number <= Number.MAX_SAFE_INTEGER ? Number(number) : number);
  const kinds = {
    0xc0: () => null,
    0xc2: () => false,
    0xc3: () => true,
    0xc4: () => bytes(size8()),
    0xc5: () => bytes(size16()),
    0xc6: () => bytes(size32()),
    0xc7: () => extension(size8()),
    0xc8: () => extension(size16()),
    0xc9: () => extension(size32()),
    0xca: () => view.getFloat32(step(4)),
    0xcb: () => view.getFloat64(step(8)),
    0xcc: size8,
    0xcd: size16,
    0xce: size32,
    0xcf: () => small(view.getBigUint64(step(8))),
    0xd0: () => view.getInt8(step(1)),
    0xd1: () => view.getInt16(step(2)),
    0xd2: () => view.getInt32(step(4)),
    0xd3: () => small(view.getBigInt64(step(8))),
    0xd4: () => extension(1),
    0xd5: () => extension(2),
    0xd6: () => extension(4),
    0xd7: () => extension(8),
    0xd8: () => extension(16),
    0xd9: () => text(size8()),
    0xda: () => text(size16()),
    0xdb: () => text(size32()),
    0xdc: () => list(size16()),
    0xdd: () => list(size32()),
    0xde: () => map(size16()),
    0xdf: () => map(size32()),
  };
  function value() {
    const kind = size8();
    if (kind < 0x80) return kind;
    if (kind < 0x90) return map(kind & 15);
    if (kind < 0xa0) return list(kind & 15);
    if (kind < 0xc0) return text(kind & 31);
    if (kind >= 0xe0) return kind - 256;
    if (!kinds[kind]) throw new Error(`byte ${kind} begins nothing`);
    return kinds[kind]();
  }
  const result = value();
  if (at !== raw.length) throw new Error("something follows it");
  return result;
}
