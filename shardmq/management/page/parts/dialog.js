// Dialogs: forms, and what must be typed before something is lost.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Command } from "./command.js";
import { keepFocus, nearby } from "./focus.js";
import { doing } from "./toasts.js";

// While it is open, the keyboard is in it; then it is where it was before, or near that.
export function Dialog({ title, onClose, children }) {
  const element = useRef();
  useEffect(() => {
    const [opener, dialog] = [document.activeElement, element.current];
    const near = [opener, ...nearby(opener)];
    dialog.showModal();
    return () => {
      keepFocus(document.body, near);
      dialog.close();
    };
  }, []);
  return html`<dialog ref=${element} onClose=${onClose} aria-label=${title}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

// A button that opens a dialog; `children` is called with the function that closes it.
export function DialogButton({ label, title = label, kind = "", children }) {
  const [isOpen, setOpen] = useState(false);
  const name = title !== label && title.startsWith(label) ? title : undefined; // of which row, who cannot see that
  return html`<button class=${kind} aria-label=${name} aria-haspopup="dialog" onClick=${() => setOpen(true)}>${label}</button>
    ${isOpen && html`<${Dialog} title=${title} onClose=${() => setOpen(false)}>${children(() => setOpen(false))}<//>`}`;
}

// A button for what cannot be undone: it is done when the thing's name has been typed.
export function ConfirmButton({ label, title, name, text, command, work, done, onDone }) {
  return html`<${DialogButton} label=${label} title=${title} kind="danger">
    ${(close) => html`<${Confirm} ...${{ label, name, text, command, work, done, onDone, close }} />`}
  <//>`;
}

function Confirm({ label, name, text, command, work, done, onDone, close }) {
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    const isDone = await doing(work, done);
    setBusy(false);
    if (isDone) {
      close();
      onDone?.();
    }
  };
  return html`<form class="form" onSubmit=${submit}>
    <p>${text}</p>
    <label>Type <code>${name}</code> to confirm <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autofocus autocomplete="off" /></label>
    <div class="actions">
      <button class="danger" disabled=${typed !== name} aria-disabled=${isBusy}>${label}</button>
      <button type="button" onClick=${close}>Cancel</button>
    </div>
    ${command && html`<${Command} ...${command} />`}
  </form>`;
}

// A form in a dialog.
// Args: fields rendered as children; `work(values)` gets them by name; `done` is what is said then; `command` is the
// command line that does the same, or a function that makes it from the values; or several, one after the other.
export function Form({ children, submit: label, work, done, onDone, command }) {
  const [isBusy, setBusy] = useState(false);
  const [typed, setTyped] = useState(null);
  const element = useRef();
  const read = () => setTyped(Object.fromEntries(new FormData(element.current)));
  useEffect(read, []);
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return; // it is not disabled: the keyboard would lose it
    const values = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    const isDone = await doing(() => work(values), done);
    setBusy(false);
    if (isDone) onDone?.();
  };
  const line = typeof command === "function" ? typed && command(typed) : command;
  const lines = line ? [line].flat() : [];
  return html`<form class="form" ref=${element} onSubmit=${submit} onInput=${read}>
    ${children}
    <div class="actions"><button class="primary" aria-disabled=${isBusy}>${label}</button></div>
    ${lines.map((each) => html`<${Command} ...${each} />`)}
  </form>`;
}

// What a text field has in JSON, as NAME=VALUE of a command line; nothing while it is no JSON yet.
export function settingsIn(text) {
  try {
    return Object.entries(objectIn(text)).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  } catch {
    return [];
  }
}

export const argumentsIn = (text) => settingsIn(text).flatMap((setting) => ["--argument", setting]);

// Reads a text field with a JSON object in it; an empty one is {}.
export function objectIn(text, what = "arguments") {
  if (!text.trim()) return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (fault) {
    throw new Error(`The ${what} are not JSON: ${fault.message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`The ${what} have to be a JSON object, as {"name": "value"}.`);
  return value;
}
