// The page: who is logged in, the list of views, and one of them.

import { h, html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, login, logout, whenLoggedOut } from "./api.js";
import * as live from "./live.js";
import { useRoute } from "./route.js";
import { keepFocus } from "./parts/focus.js";
import { Jump } from "./parts/jump.js";
import { Toasts } from "./parts/toasts.js";
import { applyScheme, SchemeChoice } from "./parts/scheme.js";
import { NAVIGATION, VIEWS } from "./views/index.js";

function LogIn({ onDone, hasEnded }) {
  const [fault, setFault] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    const form = new FormData(event.target);
    setBusy(true);
    try {
      await login(form.get("user"), form.get("password"));
      onDone();
    } catch (refused) {
      setFault(refused.status === 401 ? "The user or the password is wrong, or the user has no tag for management." : refused.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="login">
    <div class="brand"><img src="icon.svg" alt="" /> shardmq</div>
    <form class="card form" onSubmit=${submit}>
      <h1>Log in</h1>
      ${hasEnded && !fault && html`<div class="note warn" role="alert">Your login has ended: the password was changed, or the management process started anew. Log in to go on where you were.</div>`}
      ${fault && html`<div class="note bad" role="alert">${fault}</div>`}
      <label>User <input name="user" autocomplete="username" required autofocus /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" /></label>
      <button class="primary" aria-disabled=${isBusy}>Log in</button>
      <p class="dim hint">It takes a user of the broker with one of the tags management, policymaker, monitoring or administrator.</p>
    </form>
  </main>`;
}

function Side({ route, who, onLogOut }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route]);
  const seen = NAVIGATION.filter((entry) => !entry.tags || entry.tags.some((tag) => who.tags.includes(tag)));
  return html`<header class=${`side${isOpen ? " open" : ""}`}>
    <div class="bar">
      <a class="brand" href="#/"><img src="icon.svg" alt="" /> shardmq</a>
      <button class="menu" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Menu</button>
    </div>
    <nav aria-label="Views">
      ${seen.map(
        (entry) =>
          html`<a href=${`#/${entry.view}`} aria-current=${isOf(entry, route) ? "page" : undefined}>${entry.title}</a>`,
      )}
    </nav>
    <div class="foot">
      <span>Ctrl-K jumps, / searches</span>
      <${SchemeChoice} />
      <span>${who.name} ${who.tags.map((tag) => html`<span class="tag plain">${tag}</span>`)}</span>
      <button onClick=${onLogOut}>Log out</button>
    </div>
  </header>`;
}

const RETRY_MS = 2000;

const isOf = (entry, route) => entry.view === route.view || entry.also?.includes(route.view);

function Lost() {
  return html`<div class="note bad" role="alert">
    <p><strong>The broker does not answer.</strong> What is shown is of the last time it did; this page goes on by itself.</p>
  </div>`;
}

function View({ route, who }) {
  const View = VIEWS[route.view];
  if (!View) return html`<div class="note warn">There is no view “${route.view}”.</div>`;
  return h(View, { ...route, who, key: [route.view, ...route.parts].join("\n") });
}

function searchOnSlash(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, dialog")) return;
  const field = document.querySelector('main input[type="search"]');
  if (field) {
    event.preventDefault();
    field.focus();
  }
}

// Who followed a link that is gone with its view goes on in the one that came.
function useFocusOn(view) {
  const last = useRef(view);
  useEffect(() => {
    if (last.current !== view) keepFocus(document.body, []);
    last.current = view;
  }, [view]);
}

function Page() {
  const [who, setWho] = useState(undefined);
  const [hasEnded, setEnded] = useState(false);
  const route = useRoute();
  const isReached = live.useReach();
  useFocusOn([route.view, ...route.parts].join("\n"));
  const ask = () =>
    get("/whoami").then(setWho, (fault) => {
      if (fault.status === 401) setWho(null);
      else setTimeout(ask, RETRY_MS);
    });
  useEffect(() => {
    whenLoggedOut(() => setWho((now) => (now && setEnded(true), null)));
    ask();
    addEventListener("keydown", searchOnSlash);
    return () => removeEventListener("keydown", searchOnSlash);
  }, []);
  useEffect(() => {
    if (!who) return undefined;
    live.start();
    return live.stop;
  }, [who?.name]);
  if (who === undefined) return isReached ? null : html`<main><${Lost} /></main>`;
  if (who === null) return html`<${LogIn} onDone=${ask} hasEnded=${hasEnded} />`;
  const tags = Array.isArray(who.tags) ? who.tags : String(who.tags ?? "").split(",").filter(Boolean);
  const person = { ...who, tags };
  const leave = async () => {
    await logout();
    setEnded(false);
    setWho(null);
  };
  return html`<a class="skip" href="#main" onClick=${skip}>To the content</a>
    <div class="frame">
      <${Side} route=${route} who=${person} onLogOut=${leave} />
      <main id="main" tabindex="-1">
        ${!isReached && html`<${Lost} />`}
        <${View} route=${route} who=${person} />
      </main>
    </div>
    <${Jump} />
    <${Toasts} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

applyScheme();
render(html`<${Page} />`, document.getElementById("page"));
