// All that is durable, as RabbitMQ's JSON: taken out, and put in.

import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { Command } from "../parts/command.js";
import { Form } from "../parts/dialog.js";
import { Head } from "../parts/states.js";

export function Definitions() {
  const [file, setFile] = useState(null);
  const work = async () => {
    const text = await file.text();
    let definitions;
    try {
      definitions = JSON.parse(text);
    } catch (fault) {
      throw new Error(`${file.name} is not JSON: ${fault.message}`);
    }
    return post("/definitions", definitions);
  };
  return html`<${Head} title="Definitions" />
    <section class="card">
      <h2>Take out</h2>
      <p>Users, virtual hosts, permissions, exchanges, queues and bindings, without messages.</p>
      <a class="button" href="api/definitions?download=definitions.json" download="definitions.json">Download definitions</a>
      <${Command} words=${["definitions", "export"]} names=${["definitions.json"]} />
    </section>
    <section class="card">
      <h2>Put in</h2>
      <p>Exchanges, queues and topics that are there already stay as they are. Users with their passwords and tags, permissions, limits, policies and shovels become those of the file. A file of RabbitMQ's will do.</p>
      <${Form} submit="Import" work=${work} done="Imported the definitions." command=${{ words: ["definitions", "import"], names: [file?.name ?? "definitions.json"] }}>
        <label>File <input type="file" accept=".json,application/json" required onChange=${(event) => setFile(event.target.files[0])} /></label>
      <//>
    </section>`;
}
