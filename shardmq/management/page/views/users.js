// Users: who may log in, and what each may touch in which virtual host.

import { html } from "../vendor/preact.js";
import { put, remove } from "../api.js";
import { path } from "../format.js";
import { useAnswer } from "../live.js";
import { Command } from "../parts/command.js";
import { ConfirmButton, DialogButton, Form } from "../parts/dialog.js";
import { VirtualHostField } from "../parts/fields.js";
import { Answered, Head } from "../parts/states.js";
import { Table } from "../parts/table.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];

const itemsOf = (value) => value.items ?? value;
const tagsOf = (row) => (Array.isArray(row.tags) ? row.tags : String(row.tags ?? "").split(",").filter(Boolean));

export function Users() {
  const users = useAnswer("/users");
  const permissions = useAnswer("/permissions");
  return html`<${Head} title="Users" />
    <div class="tools">
      <${DialogButton} label="Add a user">${(close) => html`<${Edit} onDone=${() => [close(), users.again()]} />`}<//>
    </div>
    <section class="card">
      <${Answered} answer=${users}>${(rows) => html`<${UserTable} rows=${itemsOf(rows)} permissions=${permissions.value} again=${users.again} />`}<//>
    </section>
    <section class="card">
      <h2>Permissions</h2>
      <${Answered} answer=${permissions}>${(rows) => html`<${Permissions} rows=${itemsOf(rows)} users=${itemsOf(users.value ?? [])} again=${permissions.again} />`}<//>
    </section>
    <${Command} words=${["user", "list"]} />`;
}

function UserTable({ rows, permissions, again }) {
  const hostsOf = (name) => itemsOf(permissions ?? []).filter((row) => row.user === name).map((row) => row.vhost);
  const columns = [
    { title: "Name", isName: true, cell: (row) => row.name },
    { title: "Tags", cell: (row) => tagsOf(row).map((tag) => html`<span class="tag plain">${tag}</span>`) },
    { title: "Virtual hosts", cell: (row) => hostsOf(row.name).join(", ") || html`<span class="tag warn">none</span>` },
    { title: "Limits", cell: (row) => Object.entries(row.limits ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ") },
    {
      title: "",
      cell: (row) => html`<div class="actions">
        <${DialogButton} label="Edit" title=${`Edit ${row.name}`}>${(close) => html`<${Edit} user=${row} onDone=${() => [close(), again()]} />`}<//>
        <${ConfirmButton}
          label="Delete"
          title=${`Delete ${row.name}`}
          name=${row.name}
          text="The user is deleted, and what is logged in as this user is disconnected."
          command=${{ words: ["user", "delete"], names: [row.name] }}
          work=${() => remove(`/users${path(row.name)}`)}
          done=${`Deleted ${row.name}.`}
          onDone=${again}
        />
      </div>`,
    },
  ];
  return html`<${Table} columns=${columns} rows=${rows} caption="Users" keyOf=${(row) => row.name} />`;
}

function Edit({ user, onDone }) {
  const chosen = user ? tagsOf(user) : [];
  const others = chosen.filter((tag) => !TAGS.includes(tag)); // which this form does not know, and keeps
  const work = (values) => {
    const tags = [...TAGS.filter((tag) => values[`tag-${tag}`]), ...others].join(",");
    const secret = values.password
      ? { password: values.password }
      : user
        ? { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm }
        : { password_hash: "" };
    return put(`/users${path(user?.name ?? values.name)}`, { tags, ...secret });
  };
  // Commands ask for the password: what stands in a command line others can see.
  const command = (values) => {
    const tags = [...TAGS.filter((tag) => values[`tag-${tag}`]), ...others];
    if (!user) return { words: ["user", "add", ...tags.flatMap((tag) => ["--tag", tag])], names: [values.name] };
    const password = { words: ["user", "password"], names: [user.name] };
    return [{ words: ["user", "tags"], names: [user.name, ...tags] }, ...(values.password ? [password] : [])];
  };
  return html`<${Form} submit="Save" work=${work} done="Saved the user." onDone=${onDone} command=${command}>
    ${user
      ? html`<input name="username" autocomplete="username" value=${user.name} hidden />`
      : html`<label>Name <input name="name" autocomplete="username" required autofocus /></label>`}
    <label>Password <input name="password" type="password" autocomplete="new-password" required=${!user} placeholder=${user ? "unchanged" : ""} /></label>
    <fieldset>
      <legend>Tags</legend>
      ${TAGS.map((tag) => html`<label class="check"><input type="checkbox" name=${`tag-${tag}`} defaultChecked=${chosen.includes(tag)} />${tag}</label>`)}
    </fieldset>
  <//>`;
}

function Permissions({ rows, users, again }) {
  const columns = [
    { title: "User", isName: true, cell: (row) => row.user },
    { title: "Virtual host", cell: (row) => row.vhost },
    { title: "Configure", cell: (row) => html`<code>${row.configure}</code>` },
    { title: "Write", cell: (row) => html`<code>${row.write}</code>` },
    { title: "Read", cell: (row) => html`<code>${row.read}</code>` },
    {
      title: "",
      cell: (row) => html`<${ConfirmButton}
        label="Clear"
        title=${`Clear permissions of ${row.user} in ${row.vhost}`}
        name=${row.user}
        text=${`The user can no longer open the virtual host ${row.vhost}.`}
        command=${{ words: ["permission", "clear"], names: [row.user], vhost: row.vhost }}
        work=${() => remove(`/permissions${path(row.vhost, row.user)}`)}
        done="Cleared the permissions."
        onDone=${again}
      />`,
    },
  ];
  const work = (values) =>
    put(`/permissions${path(values.vhost, values.user)}`, { configure: values.configure, write: values.write, read: values.read });
  const command = (values) => ({
    words: ["permission", "set"],
    names: [values.user ?? "", values.configure, values.write, values.read],
    vhost: values.vhost,
  });
  return html`<${Table} columns=${columns} rows=${rows} caption="Permissions" keyOf=${(row) => `${row.vhost}\n${row.user}`} />
    <p>
      <${DialogButton} label="Set permissions">
        ${(close) => html`<${Form} submit="Set" work=${work} done="Set the permissions." onDone=${() => [close(), again()]} command=${command}>
          <div class="columns">
            <label>User <select name="user">${users.map((row) => html`<option>${row.name}</option>`)}</select></label>
            <${VirtualHostField} />
          </div>
          ${["configure", "write", "read"].map((name) => html`<label>May ${name} <input name=${name} defaultValue=".*" /></label>`)}
          <p class="hint">Regular expressions of names; an empty one allows nothing.</p>
        <//>`}
      <//>
    </p>`;
}
