// The cells of a capsule's row in the list.

import { copyButton, el, foreign, number, plural, short, shown } from "./dom.js";

export const RUNNING = "working";
export const WAITING = "input-required";
const QUEUED = "submitted";

export const live = (row) => Object.values(row.tasks).reduce((sum, count) => sum + count, 0);
export function cell(label, ...children) {
  const made = el("td", { role: "cell" }, ...children);
  made.dataset.label = label;
  return made;
}

export function address(row) {
  if (row.url === null) return [none()];
  return [el("span", { class: "kept" }, el("code", { class: "mono" }, foreign(row.url, 80)), copyButton(() => row.url, `address of ${shown(row.id, 60)}`))];
}

export function session(row) {
  if (row.session_id === null) return [none()];
  return [el("span", { class: "kept" }, el("code", { class: "mono dim", textContent: short(row.session_id) }), copyButton(() => row.session_id, `session of ${shown(row.id, 60)}`))];
}

export function offers(row) {
  const tags = row.tools.slice(0, 3).map((tool) => el("li", { class: "tag" }, foreign(tool, 24)));
  if (row.tool_count > 3) tags.push(el("li", { class: "tag more", textContent: `+${number(row.tool_count - 3)} tools` }));
  tags.push(...row.planes.map((plane) => el("li", { class: "tag plane", textContent: shown(plane, 24) })));
  return tags.length ? el("ul", { class: "tags" }, ...tags) : none();
}

export function work(row) {
  if (row.backend === null) return none();
  const workers = row.workers ? plural(row.workers, "worker") : row.backend === "inbox" ? "no worker" : "";
  const lacking = !row.workers && row.backend === "inbox" && live(row) > 0;
  return el("div", {}, shown(row.backend, 20), workers ? el("span", { class: lacking ? "sub warn" : "sub", textContent: workers }) : null);
}

export function tasks(row) {
  const parts = [
    [row.tasks[RUNNING], "running", "working"],
    [row.tasks[WAITING], "to answer", "input-required"],
    [row.tasks[QUEUED], "queued", "submitted"],
  ];
  const tags = parts.filter(([count]) => count).map(([count, word, state]) => el("li", { class: `load is-${state}`, textContent: `${number(count)} ${word}` }));
  return tags.length ? el("ul", { class: "tags" }, ...tags) : none();
}

function none() {
  return el("span", { class: "none" }, el("span", { "aria-hidden": "true", textContent: "–" }), el("span", { class: "hidden", textContent: "none" }));
}
