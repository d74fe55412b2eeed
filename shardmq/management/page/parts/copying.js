// A copy of a message that was looked at, changed and published; the original stays, unless it is asked to go.

import { html, useRef } from "../vendor/preact.js";
import { post } from "../api.js";
import { bytes } from "../format.js";
import { useAnswer } from "../live.js";
import { objectIn, DialogButton, Form } from "./dialog.js";
import { editable, encoded } from "./editing.js";
import { Answered } from "./states.js";

const EDITED_MAX = 1 << 20; // bytes of a body that can be edited
const SHOWN_MAX = 200; // characters of a body in a command line

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
      found?.position === message.position && found.id === message.id
        ? html`<${Edit} original=${{ ...found, partition: message.partition ?? 0 }} ...${{ place, of, mayRemove, onDone }} />`
        : html`<div class="note warn" role="alert">It is not there any more: somebody has it, or it is gone.</div>`}
  <//>`;
}

// What the fields show first: where a dead letter came from, it goes again.
function textsOf(message) {
  const { exchange, routing_key: key, properties, payload_bytes: size } = message;
  const { headers = {}, content_type: type = "", ...others } = properties;
  const death = headers["x-death"]?.[0];
  const route = death ? { exchange: death.exchange ?? "", key: death["routing-keys"]?.[0] ?? death.queue } : { exchange, key };
  return { route, type, headers, others, size, body: editable(message) };
}

// What has changed of a table: null for what is left out.
function patchOf(before, after) {
  const changed = Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]));
  const gone = Object.keys(before).filter((name) => !(name in after));
  return Object.fromEntries([...changed, ...gone.map((name) => [name, null])]);
}

// The request for what the fields say now; `edited` is the text of the body, undefined where it is as it was.
function requestOf(values, texts, original) {
  const headers = patchOf(texts.headers, objectIn(values.headers, "headers"));
  const properties = patchOf(texts.others, objectIn(values.others, "other properties"));
  if (Object.keys(headers).length) properties.headers = headers;
  if (values.type !== texts.type) properties.content_type = values.type || null;
  const text = values.body?.replaceAll("\r\n", "\n"); // as forms have line ends
  const edited = text === texts.body.text ? undefined : text;
  const route = { exchange: values.exchange, routing_key: values.key };
  return { edited, position: original.position, id: original.id, partition: original.partition, ...route, properties, remove: Boolean(values.remove) };
}

function commandOf({ exchange, routing_key: key, properties, edited, remove }, { form, compression }, original, of) {
  const { headers = {}, content_type: type, ...others } = properties;
  const settings = (option, without, changes, write) =>
    Object.entries(changes).flatMap(([name, value]) => (value === null ? [without, name] : [option, `${name}=${write(value)}`]));
  const words = ["queue", "republish", "--exchange", exchange, "--routing-key", key];
  if (type !== undefined) words.push(...(type === null ? ["--without-property", "content_type"] : ["--content-type", type]));
  words.push(...settings("--header", "--without-header", headers, JSON.stringify));
  words.push(...settings("--property", "--without-property", others, String));
  const isShort = form === "text" && !compression && edited?.length <= SHOWN_MAX;
  if (edited !== undefined) words.push(...(isShort ? ["--body", edited] : ["--file", compression === "gzip" ? "BODY.gz" : "BODY"]));
  if (remove) words.push("--remove");
  words.push("--message-id", original.id);
  return { words, names: [of.name, original.position], vhost: of.vhost };
}

function Edit({ original, place, of, mayRemove, onDone }) {
  const texts = textsOf(original);
  const isRemoved = useRef(false);
  const work = async (values) => {
    const { edited, ...request } = requestOf(values, texts, original);
    const payload = edited === undefined ? {} : await encoded(edited, texts.body);
    const answer = await post(`${place}/republish`, { ...request, ...payload });
    if (!answer.routed) throw new Error("No queue is bound for this key: nothing was published, and the original is as it was.");
    isRemoved.current = answer.removed;
    return answer;
  };
  const command = (values) => {
    try {
      return commandOf(requestOf(values, texts, original), texts.body, original, of);
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
    <${BodyField} ...${texts} />
    ${mayRemove && html`<label class="check"><input type="checkbox" name="remove" />Remove the original when the copy is confirmed</label>`}
  <//>`;
}

const TITLES = { text: "Body", MessagePack: "Body: MessagePack, edited as JSON", Base64: "Body, in Base64" };

function BodyField({ body: { text, form, compression }, size, others }) {
  if (text === null) {
    const why = compression ? "is compressed, and unpacked it is too large to edit here, or breaks off" : `has ${bytes(size)}, too many to edit here`;
    return html`<p class="hint">The body ${why}: the copy has the same.</p>`;
  }
  const encoding = others.content_encoding;
  return html`<label>${TITLES[form]} <textarea name="body" defaultValue=${text}></textarea></label>
    ${compression && html`<p class="hint">It is shown decompressed (${compression === "gzip" ? "gzip" : "deflate"}); what you change is compressed again, in the same way.</p>`}
    ${form === "Base64" && html`<p class="hint">It ${encoding && !compression ? `says that it is encoded as ${encoding}, and ` : ""}cannot be edited as text here.</p>`}`;
}
