// A message published by hand; it is confirmed before the answer comes.

import { html } from "../vendor/preact.js";
import { post } from "../api.js";
import { path } from "../format.js";
import { Form, objectIn } from "./dialog.js";

export function Publish({ vhost, exchange, routingKey = "", isKeyFixed = false, onDone }) {
  const work = (values) =>
    post(`/exchanges${path(vhost, exchange)}/publish`, {
      routing_key: isKeyFixed ? routingKey : values.key,
      payload: values.body,
      payload_encoding: "string",
      properties: {
        delivery_mode: values.persistent ? 2 : 1,
        headers: objectIn(values.headers),
        ...(values.type ? { content_type: values.type } : {}),
      },
    });
  const command = (values) => {
    const words = ["publish"];
    if (exchange !== "amq.default") words.push("--exchange", exchange);
    if (values.type) words.push("--content-type", values.type);
    if (!values.persistent) words.push("--transient");
    return { words, names: [isKeyFixed ? routingKey : values.key, values.body || "BODY"], vhost };
  };
  return html`<section class="card">
    <h2>Publish a message</h2>
    <${Form}
      submit="Publish"
      work=${work}
      done=${(answer) => (answer.routed ? "Published and confirmed." : "Confirmed, but no queue is bound for this key: the message went nowhere.")}
      onDone=${onDone}
      command=${command}
    >
      <div class="columns">
        ${!isKeyFixed && html`<label>Routing key <input name="key" defaultValue=${routingKey} /></label>`}
        <label>Content type <input name="type" placeholder="application/json" /></label>
        <label>Headers, as JSON <input name="headers" placeholder="{}" /></label>
      </div>
      <label>Body <textarea name="body"></textarea></label>
      <label class="check"><input type="checkbox" name="persistent" defaultChecked />Persistent</label>
    <//>
  </section>`;
}
