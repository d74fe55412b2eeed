// Where the keyboard is when what it was on is gone: on something near, never nowhere.

// Args: element: that is about to go, and all that is in it; near: what to go to, the first that is still there then.
export function keepFocus(element, near) {
  if (!element?.contains(document.activeElement)) return;
  setTimeout(() => {
    if (document.activeElement !== document.body) return; // somebody has taken it
    const there = [...near, document.getElementById("main")].find((each) => each?.isConnected && each !== document.body);
    there?.focus({ preventScroll: true });
  });
}

// What is near something that may go: what opens or begins the part of the view that it is in.
export const nearby = (element) => [
  element?.closest("details")?.querySelector("summary"),
  element?.closest("form")?.querySelector("button.primary"),
  element?.closest(".scroll"),
  element?.closest("section")?.querySelector("button.primary, input, button"),
];
