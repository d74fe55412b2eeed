// Values as MessagePack, each in its shortest form, as most libraries write it.

const encoder = new TextEncoder();

export function pack(value) {
  const out = [];
  write(value, out);
  return Uint8Array.from(out);
}

function write(value, out) {
  if (value === null) out.push(0xc0);
  else if (typeof value === "boolean") out.push(value ? 0xc3 : 0xc2);
  else if (typeof value === "number") writeNumber(value, out);
  else if (typeof value === "string") writeText(encoder.encode(value), out);
  else if (Array.isArray(value)) {
    writeSize(value.length, out, 0x90, 15, [null, 0xdc, 0xdd]);
    for (const each of value) write(each, out);
  } else {
    const entries = Object.entries(value);
    writeSize(entries.length, out, 0x80, 15, [null, 0xde, 0xdf]);
    for (const [name, each] of entries) [name, each].forEach((one) => write(one, out));
  }
}

function writeText(raw, out) {
  writeSize(raw.length, out, 0xa0, 31, [0xd9, 0xda, 0xdb]);
  for (const byte of raw) out.push(byte);
}

// Args: short: the kind that has sizes up to `most` in itself; kinds: those with a size of 8, 16 and 32 bits behind them.
function writeSize(size, out, short, most, kinds) {
  if (size <= most) return out.push(short | size);
  const width = size < 256 && kinds[0] ? 0 : size < 65536 ? 1 : 2;
  return out.push(kinds[width], ...bytesOf(2 ** width, (view) => [view.setUint8, view.setUint16, view.setUint32][width].call(view, 0, size)));
}

function writeNumber(value, out) {
  if (!Number.isSafeInteger(value) || Object.is(value, -0)) return out.push(0xcb, ...bytesOf(8, (view) => view.setFloat64(0, value)));
  if (value >= -32 && value < 128) return out.push(value & 0xff);
  const [kinds, widths] = value > 0 ? [[0xcc, 0xcd, 0xce, 0xcf], [8, 16, 32, 64]] : [[0xd0, 0xd1, 0xd2, 0xd3], [7, 15, 31, 63]];
  const at = widths.findIndex((bits) => (value > 0 ? value < 2 ** bits : value >= -(2 ** bits)));
  const set = { 1: "setInt8", 2: "setInt16", 4: "setInt32" }[2 ** at];
  return out.push(kinds[at], ...bytesOf(2 ** at, (view) => (set ? view[set](0, value) : view.setBigInt64(0, BigInt(value)))));
}

function bytesOf(size, fill) {
  const view = new DataView(new ArrayBuffer(size));
  fill(view);
  return new Uint8Array(view.buffer);
}
