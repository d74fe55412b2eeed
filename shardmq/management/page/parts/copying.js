// A copy of a message that was looked at, changed and published; the original stays, unless it is asked to go.

import { html, useRef } from "../vendor/preact.js";
import { post } from "../api.js";
import { bytes } from "../format.js";
import { useAnswer } from "../live.js";
import { objectIn, DialogButton, Form } from "./dialog.js";
import { Answered } from "./states.js";

const EDITED_MAX = 1 << 20; // bytes of a body that can be edited
const SHOWN_MAX = 200; // characters of a body in a command line

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// Args: place: of the queue or topic in the API; of: {vhost, name} for the command line; message: a row;
// mayRemove: whether the original can go; onDone: is called with whether it went.
export function CopyButton({ place, of, message, mayRemove, onDone }) {
  return html`<${DialogButton} label="Edit and publish a copy">
    ${(close) => html`<${Loaded} ...${{ place, of, message, mayRemove }} onDone=${(isRemoved) => [close(), onDone?.(isRemoved)]} />`}
  <//>`;
}

// The message once more, with all of its body.
function Loaded({ place, of, message, mayRemove, onDone }) {
  const words = new URLSearchParams({ start: message.position, count: 1, partition: message.partition ?? 0, body_bytes: EDITED_MAX });
  const answer = useAnswer(`${place}/messages?${words}`, { isLive: false });
  return html`<${Answered} answer=${answer}>
    ${({ messages: [found] }) =>
      found?.position === message.position
        ? html`<${Edit} original=${{ ...found, partition: message.partition ?? 0 }} ...${{ place, of, mayRemove, onDone }} />`
        : html`<div class="note warn" role="alert">It is not there any more: somebody has it, or it is gone.</div>`}
  <//>`;
}

// What the fields show first: where a dead letter came from, it goes again.
function textsOf({ exchange, routing_key: key, properties, payload_base64: base64, is_truncated: isCut, payload_bytes: size }) {
  const { headers = {}, content_type: type = "", ...others } = properties;
  const death = headers["x-death"]?.[0];
  const route = death ? { exchange: death.exchange ?? "", key: death["routing-keys"]?.[0] ?? death.queue } : { exchange, key };
  const raw = bytesOf(base64);
  let body = null;
  if (!isCut && !properties.content_encoding) {
    try {
      body = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    } catch {
      body = null;
    }
  }
  const lines = body?.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
  return { route, type, headers, others, base64, isCut, size, isText: body !== null, body: body === null ? base64 : lines, isCrlf: body?.includes("\r\n") && !body.replaceAll("\r\n", "").includes("\n") };
}

// What has changed of a table: null for what is left out.
function patchOf(before, after) {
  const changed = Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]));
  const gone = Object.keys(before).filter((name) => !(name in after));
  return Object.fromEntries([...changed, ...gone.map((name) => [name, null])]);
}

// The request for what the fields say now.
function requestOf(values, texts, original) {
  const headers = patchOf(texts.headers, objectIn(values.headers, "headers"));
  const properties = patchOf(texts.others, objectIn(values.others, "other properties"));
  if (Object.keys(headers).length) properties.headers = headers;
  if (values.type !== texts.type) properties.content_type = values.type || null;
  const isEdited = values.body !== undefined && values.body.replaceAll("\r\n", "\n") !== texts.body;
  const text = values.body?.replaceAll("\r\n", "\n");
  const payload = isEdited && { payload: texts.isCrlf ? text.replaceAll("\n", "\r\n") : text, payload_encoding: texts.isText ? "string" : "base64" };
  const route = { exchange: values.exchange, routing_key: values.key };
  return { position: original.position, partition: original.partition, ...route, properties, ...payload, remove: Boolean(values.remove) };
}

function commandOf({ exchange, routing_key: key, properties, payload, payload_encoding: encoding, remove }, original, of) {
  const { headers = {}, content_type: type, ...others } = properties;
  const settings = (option, without, changes, write) =>
    Object.entries(changes).flatMap(([name, value]) => (value === null ? [without, name] : [option, `${name}=${write(value)}`]));
  const words = ["queue", "republish", "--exchange", exchange, "--routing-key", key];
  if (type !== undefined) words.push(...(type === null ? ["--without-property", "content_type"] : ["--content-type", type]));
  words.push(...settings("--header", "--without-header", headers, JSON.stringify));
  words.push(...settings("--property", "--without-property", others, String));
  const isShort = encoding === "string" && payload.length <= SHOWN_MAX;
  if (payload !== undefined) words.push(...(isShort ? ["--body", payload] : ["--file", "BODY"]));
  if (remove) words.push("--remove");
  return { words, names: [of.name, original.position], vhost: of.vhost };
}

function Edit({ original, place, of, mayRemove, onDone }) {
  const texts = textsOf(original);
  const isRemoved = useRef(false);
  const work = async (values) => {
    const answer = await post(`${place}/republish`, requestOf(values, texts, original));
    if (!answer.routed) throw new Error("No queue is bound for this key: nothing was published, and the original is as it was.");
    isRemoved.current = answer.removed;
    return answer;
  };
  const command = (values) => {
    try {
      return commandOf(requestOf(values, texts, original), original, of);
    } catch {
      return []; // a field is no JSON yet
    }
  };
  const done = ({ removed }) => (removed ? "Published the copy and removed the original." : "Published the copy; the original stays.");
  return html`<${Form} submit="Publish the copy" work=${work} done=${done} onDone=${() => onDone(isRemoved.current)} command=${command}>
    <div class="columns">
      <label>Exchange <input name="exchange" defaultValue=${texts.route.exchange} placeholder="(default)" /></label>
      <label>Routing key <input name="key" defaultValue=${texts.route.key} /></label>
      <label>Content type <input name="type" defaultValue=${texts.type} /></label>
    </div>
    ${texts.headers["x-death"] && html`<p class="hint">It is a dead letter: this is the way it was published before it died.</p>`}
    <label>Headers, as JSON <textarea name="headers" defaultValue=${JSON.stringify(texts.headers, null, 2)}></textarea></label>
    <label>Other properties, as JSON <textarea class="low" name="others" defaultValue=${JSON.stringify(texts.others)}></textarea></label>
    ${texts.isCut
      ? html`<p class="hint">The body has ${bytes(texts.size)}, too many to edit here: the copy has the same.</p>`
      : html`<label>${texts.isText ? "Body" : "Body, in Base64"} <textarea name="body" defaultValue=${texts.body}></textarea></label>`}
    ${mayRemove && html`<label class="check"><input type="checkbox" name="remove" />Remove the original when the copy is confirmed</label>`}
  <//>`;
}
