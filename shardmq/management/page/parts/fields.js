// Fields of forms that several views have.

import { html } from "../vendor/preact.js";
import { useAnswer } from "../live.js";

export function VirtualHostField({ name = "vhost", value = "/" }) {
  const { value: found } = useAnswer("/vhosts?columns=name", { isLive: false });
  const names = (found?.items ?? found ?? [{ name: value }]).map((row) => row.name);
  return html`<label
    >Virtual host
    <select name=${name}>
      ${names.map((each) => html`<option selected=${each === value}>${each}</option>`)}
    </select>
  </label>`;
}
