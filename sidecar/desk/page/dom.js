// Making and changing what is shown. Text from manifests and workers goes in by `textContent` alone, and through `shown`.

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\u200c", "\u200d"]); // joiners: scripts and emoji need them, and they move nothing
const LINES = new Set(["\n", "\t"]);

function escaped(character) {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Text of one line, at most so long, with everything that cannot be seen, or turns what follows around, as an escape. */
export function shown(text, most = 200) {
  const cut = cutTo(String(text ?? ""), most);
  return cut.replace(UNSEEN, (c) => (KEPT.has(c) ? c : escaped(c)));
}

/** The same for text of several lines. */
export function shownLines(text, most = 16_384) {
  const cut = cutTo(String(text ?? ""), most).replaceAll("\r\n", "\n");
  return cut.replace(UNSEEN, (c) => (KEPT.has(c) || LINES.has(c) ? c : escaped(c)));
}

function cutTo(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Make an element: `set` has properties, `class`, `on` (listeners) and attributes (anything with a dash, or `role`). */
export function el(tag, set = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(set)) {
    if (value === undefined || value === null) continue;
    if (name === "class") made.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name.includes("-") || name === "role" || name === "for" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text that is not ours: set apart from the direction of what is around it. */
export function foreign(text, most) {
  return el("bdi", { textContent: shown(text, most) });
}

/** Give an element these children, and leave the document alone where it has them. */
export function fill(element, ...children) {
  const wanted = children.filter((child) => child !== null && child !== undefined);
  const same = wanted.length === element.childNodes.length && wanted.every((child, i) => child === element.childNodes[i]);
  if (!same) element.replaceChildren(...wanted);
}

/** Set text only where it changes, so that selections and screen readers are left in peace. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tell those who do not see the page what happened. */
export function announce(text) {
  say(document.getElementById("said"), text);
}

/** Show a problem for a while. */
export function toast(text) {
  const shownFor = el("div", { class: "toast" }, el("span", { textContent: shown(text, 400) }));
  const close = el("button", { class: "quiet", type: "button", textContent: "Dismiss", on: { click: () => shownFor.remove() } });
  shownFor.append(close);
  const all = document.getElementById("toasts");
  while (all.childElementCount >= 3) all.firstElementChild.remove();
  all.append(shownFor);
  setTimeout(() => shownFor.remove(), 12_000);
}

/** A button that copies what `text` returns; `what` is what that is, for its name. */
export function copyButton(text, what, label = "") {
  const button = el("button", { class: label ? "quiet copy" : "icon copy", type: "button", "aria-label": `Copy ${what}`, title: `Copy ${what}` });
  button.append(el("span", { class: "glyph", "aria-hidden": "true" }));
  if (label) button.append(label);
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      toast("The browser does not let this page copy; select the text instead.");
      return;
    }
    button.classList.add("done");
    announce(`Copied ${what}`);
    setTimeout(() => button.classList.remove("done"), 1500);
  });
  return button;
}

/** The state of a capsule or task: a dot and the word, so that it needs no colour. */
export function stateMark(state, label = state) {
  return el("span", { class: `state is-${state}` }, el("span", { class: "dot", "aria-hidden": "true" }), label);
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

const figures = new Intl.NumberFormat("en");
export function number(value) {
  return figures.format(value);
}

export function size(bytes) {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} GiB`;
}

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const hours = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
/** A time element: the hour alone where it is of today. */
export function moment(milliseconds) {
  const at = new Date(milliseconds);
  if (Number.isNaN(at.getTime())) return el("span", { textContent: "—" });
  const today = at.toDateString() === new Date().toDateString();
  return el("time", { dateTime: at.toISOString(), title: moments.format(at), textContent: (today ? hours : moments).format(at) });
}

/** An id with its middle left out. */
export function short(id) {
  const text = shown(id, 200);
  return text.length > 20 ? `${text.slice(0, 8)}…${text.slice(-6)}` : text;
}
