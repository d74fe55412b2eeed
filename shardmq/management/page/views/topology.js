// Exchanges, queues and their bindings as a graph, and where a message with a routing key would go.

import { html, useState } from "../vendor/preact.js";
import { get, query as words } from "../api.js";
import { path } from "../format.js";
import { useAnswer } from "../live.js";
import { link, refine } from "../route.js";
import { Command } from "../parts/command.js";
import { layout } from "../parts/layout.js";
import { Answered, Fault, Head } from "../parts/states.js";
import { VirtualHostField } from "../parts/fields.js";

const SHOWN_MAX = 400;

export function Topology({ query }) {
  const vhost = query.vhost ?? "/";
  const bindings = useAnswer(`/bindings${path(vhost)}`);
  const [tried, setTried] = useState(null);
  const [fault, setFault] = useState(null);
  const attempt = async (event) => {
    event.preventDefault();
    const { exchange, key } = Object.fromEntries(new FormData(event.target));
    try {
      setTried(await get(`/shardmq/exchanges${path(vhost, exchange || "amq.default")}/route${words({ routing_key: key })}`));
      setFault(null);
    } catch (refused) {
      setFault(refused);
    }
  };
  return html`<${Head} title="Topology" />
    <div class="tools" onChange=${(event) => event.target.name === "vhost" && refine({ vhost: event.target.value })}>
      <${VirtualHostField} value=${vhost} />
      <form class="tools" onSubmit=${attempt}>
        <input name="exchange" aria-label="Exchange" placeholder="exchange" />
        <input name="key" aria-label="Routing key" placeholder="routing key" />
        <button class="primary">Try the key</button>
      </form>
    </div>
    ${fault && html`<${Fault} fault=${fault} />`} ${tried && html`<${Outcome} tried=${tried} vhost=${vhost} />`}
    <${Answered} answer=${bindings}>${(rows) => html`<${Graph} rows=${rows} tried=${tried} vhost=${vhost} />`}<//>
    <${Command} words=${["binding", "list"]} vhost=${vhost} />`;
}

function Outcome({ tried, vhost }) {
  if (tried.queues.length === 0) return html`<div class="note warn">No queue would get the message.</div>`;
  return html`<div class="note good">
    It would go to ${tried.queues.map((name, place) => html`${place ? ", " : ""}<a href=${link(["queues", vhost, name])}>${name}</a>`)}.
  </div>`;
}

function Graph({ rows, tried, vhost }) {
  const drawn = rows.filter((row) => row.source);
  if (drawn.length === 0) return html`<section class="card"><p class="empty">Nothing is bound but queues to the default exchange.</p></section>`;
  const { nodes, edges, width, height } = layout(drawn.slice(0, SHOWN_MAX));
  const hits = tried && new Set([...tried.exchanges.map((name) => `e:${name}`), ...tried.queues.map((name) => `q:${name}`)]);
  const mark = (isHit) => (hits ? (isHit ? " hit" : " miss") : "");
  return html`<section class="card">
    ${drawn.length > SHOWN_MAX && html`<p class="dim">Showing ${SHOWN_MAX} of ${drawn.length} bindings.</p>`}
    <div class="graph" tabindex="0" role="region" aria-label=${`${nodes.length} exchanges and queues, ${edges.length} bindings`}>
      <svg width=${width} height=${height}>
        ${edges.map(
          (edge) => html`<g class=${`edge${mark(hits?.has(edge.from) && hits?.has(edge.to))}`}>
            <path d=${edge.line} />
            <text x=${edge.x} y=${edge.y} text-anchor="middle">${edge.label}</text>
          </g>`,
        )}
        ${nodes.map(
          (node) => html`<a href=${link([node.kind === "exchange" ? "exchanges" : "queues", vhost, node.name])}>
            <g class=${`node ${node.kind}${mark(hits?.has(node.id))}`}>
              <rect x=${node.x} y=${node.y} width=${node.width} height="28" rx=${node.kind === "exchange" ? 14 : 5} />
              <text x=${node.x + 12} y=${node.y + 18}>${node.text}</text>
            </g>
          </a>`,
        )}
      </svg>
    </div>
  </section>`;
}
