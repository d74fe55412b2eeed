// A body as it is edited: decompressed, and MessagePack as JSON, where that can be undone; else its bytes in Base64.

import { unpack } from "./decoding.js";
import { pack } from "./packing.js";

const PLAIN = new Set(["", "identity", "binary", "utf-8", "utf8", "us-ascii", "ascii", "gzip", "x-gzip", "deflate"]);
const PIECE = 0x8000; // arguments of a call

export const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

function base64Of(raw) {
  let letters = "";
  for (let at = 0; at < raw.length; at += PIECE) letters += String.fromCharCode(...raw.subarray(at, at + PIECE));
  return btoa(letters);
}

const isSame = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

// How a body is compressed, as streams of browsers call it; null where it is not.
function compressionOf(raw, isUnpacked, encoding) {
  if (!isUnpacked) return null;
  if (encoding !== "deflate" || (raw[0] === 0x1f && raw[1] === 0x8b)) return "gzip";
  return (raw[0] & 15) === 8 && (raw[0] * 256 + raw[1]) % 31 === 0 ? "deflate" : "deflate-raw";
}

// Args: message: a row of the API with all of its body.
// Returns {text, form, compression, lineEnd}: form is "text", "MessagePack" or "Base64"; text is null where it cannot be
// edited here.
export function editable({ payload_base64: base64, unpacked_base64: unpacked, is_truncated: isCut, payload_bytes: size, properties }) {
  const encoding = String(properties.content_encoding ?? "").toLowerCase();
  const raw = bytesOf(base64);
  const compression = compressionOf(raw, unpacked !== undefined, encoding);
  if (isCut || (compression === null && raw.length < size)) return { text: null, form: null, compression };
  const body = compression ? bytesOf(unpacked) : raw;
  const read = PLAIN.has(encoding) ? asMessagePack(body, properties) ?? asText(body) : null;
  return { ...(read ?? { text: compression ? unpacked : base64, form: "Base64" }), compression };
}

function asText(body) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    const isCrlf = text.includes("\r\n") && !/\r(?!\n)|(?<!\r)\n/.test(text);
    if (text.includes("\r") && !isCrlf) return null; // a text field would change it
    return { text: text.replaceAll("\r\n", "\n"), form: "text", lineEnd: isCrlf ? "\r\n" : "\n" };
  } catch {
    return null;
  }
}

// As JSON, where writing it again gives the same bytes: not with other keys than texts, binary values or whole floats.
function asMessagePack(body, properties) {
  const type = String(properties.content_type ?? "");
  if (!/msgpack|messagepack/.test(type) && !(body[0] >= 0x80 && body[0] < 0xa0)) return null;
  try {
    const text = JSON.stringify(unpack(body), null, 2);
    return isSame(pack(JSON.parse(text)), body) ? { text, form: "MessagePack" } : null;
  } catch {
    return null;
  }
}

function rawOf(text, { form, lineEnd }) {
  if (form === "text") return new TextEncoder().encode(lineEnd === "\r\n" ? text.replaceAll("\n", "\r\n") : text);
  try {
    return form === "MessagePack" ? pack(JSON.parse(text)) : bytesOf(text);
  } catch (fault) {
    throw new Error(`The body is not ${form === "MessagePack" ? "JSON" : "Base64"}: ${fault.message}`);
  }
}

// What the API is sent for an edited text: {payload, payload_encoding}.
export async function encoded(text, body) {
  const raw = rawOf(text, body);
  if (body.form === "text" && !body.compression) return { payload: new TextDecoder("utf-8", { ignoreBOM: true }).decode(raw), payload_encoding: "string" };
  if (!body.compression) return { payload: base64Of(raw), payload_encoding: "base64" };
  const packed = new Blob([raw]).stream().pipeThrough(new CompressionStream(body.compression));
  return { payload: base64Of(new Uint8Array(await new Response(packed).arrayBuffer())), payload_encoding: "base64" };
}
