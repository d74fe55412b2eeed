// Short notes on what was done, or why it was not.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { keepFocus } from "./focus.js";

const SHOWN_MS = 6000;
let add = () => {};
let number = 0;

export function Toasts() {
  const [notes, setNotes] = useState([]);
  useEffect(() => {
    add = (text, kind) => {
      const note = { text, kind, number: (number += 1) };
      setNotes((old) => [...old.slice(-3), note]);
      if (kind !== "bad") setTimeout(() => setNotes((old) => old.filter((other) => other !== note)), SHOWN_MS);
    };
  }, []);
  const close = (note) => setNotes((old) => old.filter((other) => other !== note));
  return html`<div class="toasts" role="status" aria-live="polite">
    ${notes.map((note) => html`<${Note} key=${note.number} ...${note} close=${() => close(note)} />`)}
  </div>`;
}

function Note({ text, kind, close }) {
  const element = useRef();
  useEffect(() => {
    const note = element.current;
    return () => keepFocus(note, []);
  }, []);
  return html`<div class=${`note ${kind}`} ref=${element}>${text} <button class="link" onClick=${close}>close</button></div>`;
}

// Carries out what somebody asked for, and says how it ended. Returns whether it was done.
export async function doing(work, done) {
  try {
    const result = await work();
    add(typeof done === "function" ? done(result) : done, "good");
    return true;
  } catch (fault) {
    add(fault.message, "bad");
    return false;
  }
}
