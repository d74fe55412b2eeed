// The address of a view: `#/queues/%2F/orders?sort=messages`. Every view has one, so that it can be kept and sent.

import { useEffect, useState } from "./vendor/preact.js";

export function current() {
  const [place, words] = (location.hash.slice(1) || "/").split("?");
  const parts = place.split("/").filter(Boolean).map(decodeURIComponent);
  return { view: parts[0] ?? "overview", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(words ?? "")) };
}

export function useRoute() {
  const [route, setRoute] = useState(current());
  useEffect(() => {
    const follow = () => setRoute(current());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

export function link(parts, query = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  const text = words.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const go = (parts, query) => {
  location.hash = link(parts, query);
};

// Changes the words behind the question mark, without a new entry in the browser's history.
export function refine(changes) {
  const { view, parts, query } = current();
  history.replaceState(null, "", link([view, ...parts], { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
