// One capsule: who it is, what is wrong with it, and four tabs of what can be seen and done.

import { Activity } from "./activity.js";
import { call } from "./api.js";
import { copyButton, el, foreign, plural, say, shown, shownLines, stateMark } from "./dom.js";
import { calledBy } from "./list.js";
import { Cards, Connect, Files } from "./looks.js";

const TABS = [
  ["activity", "Activity"],
  ["files", "Files"],
  ["cards", "Cards"],
  ["connect", "Connect"],
];
const MOST_WARNINGS = 20;
const MOST_DESCRIPTION = 20_000;

export class CapsuleView {
  constructor(section, registry, onProblem) {
    this.section = section;
    this.registry = registry;
    this.onProblem = onProblem;
    this.id = null;
    this.row = undefined;
  }

  show(id, settings) {
    const tab = TABS.some(([name]) => name === settings.get("tab")) ? settings.get("tab") : "activity";
    const task = settings.get("task");
    if (this.id !== id) {
      this.hide();
      this.id = id;
      this.section.hidden = false;
      this.build();
      this.update();
      this.title.focus();
      window.scrollTo(0, 0);
    }
    this.choose(tab, task);
  }

  hide() {
    this.leave();
    this.section.hidden = true;
    this.section.replaceChildren();
    this.id = null;
    this.row = undefined;
  }

  leave() {
    this.looking?.abort();
    this.looking = null;
    this.panel?.close?.();
    this.panel = null;
    this.tab = null;
    this.session = undefined;
  }

  build() {
    this.title = el("h1", { id: "capsule-title", tabIndex: -1 });
    this.state = el("span", { class: "title-state" });
    this.about = el("p", { class: "muted" });
    this.description = el("div", { class: "description", hidden: true });
    this.notices = el("div", {});
    this.facts = el("dl", { class: "facts" });
    this.tabs = new Map();
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": "About this capsule" });
    for (const [name, label] of TABS) {
      const tab = el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", textContent: label });
      tab.addEventListener("click", () => this.go(name));
      tab.addEventListener("keydown", (event) => this.step(event, name));
      this.tabs.set(name, tab);
      list.append(tab);
    }
    this.body = el("div", { class: "tab-panel", role: "tabpanel", id: "panel", tabIndex: 0 });
    this.section.replaceChildren(
      el("nav", { "aria-label": "Up" }, el("a", { class: "up", href: "#/", textContent: "← All capsules" })),
      el("div", { class: "heading" }, el("div", { class: "title" }, this.title, this.state), this.about),
      this.notices,
      this.description,
      this.facts,
      list,
      this.body,
    );
  }

  /** Move along the tabs by the arrow keys (WAI-ARIA Authoring Practices, Tabs). */
  step(event, name) {
    const names = TABS.map(([one]) => one);
    const at = names.indexOf(name);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = names[(to + names.length) % names.length];
    this.go(next);
    this.tabs.get(next).focus();
  }

  go(tab, task = null) {
    const said = new URLSearchParams();
    if (tab !== "activity") said.set("tab", tab);
    if (task !== null) said.set("task", task);
    history.replaceState(null, "", `#/capsules/${encodeURIComponent(this.id)}${said.size ? `?${said}` : ""}`);
    this.choose(tab, task);
  }

  choose(name, task) {
    for (const [one, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(one === name));
      tab.tabIndex = one === name ? 0 : -1;
    }
    this.body.setAttribute("aria-labelledby", `tab-${name}`);
    if (!this.row) return;
    if (this.tab !== name) {
      this.panel?.close?.();
      this.tab = name;
      this.body.replaceChildren();
      const to = { row: this.row, onProblem: this.onProblem, go: (chosen) => this.go("activity", chosen) };
      const make = { activity: Activity, files: Files, cards: Cards, connect: Connect }[name];
      this.panel = new make(this.body, to);
    }
    if (name === "activity") this.panel.watch(task);
  }

  update() {
    if (this.id === null) return;
    const row = this.registry.rows.get(this.id);
    if (row === this.row && (row || !this.registry.ready)) return;
    this.row = row;
    if (!row) {
      this.gone();
      return;
    }
    document.title = `${shown(calledBy(row), 60)} · sidecar`;
    this.title.replaceChildren(foreign(calledBy(row), 160));
    this.state.replaceChildren(stateMark(row.state));
    const about = [row.version === null ? null : foreign(`version ${row.version}`, 80), row.name === null || row.name === row.id ? null : el("code", {}, foreign(row.id, 140))];
    this.about.replaceChildren(...about.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])));
    this.tell(row);
    this.know(row);
    for (const tab of this.tabs.values()) tab.disabled = false;
    if (this.session !== row.session_id || this.url !== row.url) this.begin(row);
    else this.panel?.update?.(row);
  }

  /** Begin anew with a session that has come, or that is served elsewhere now. */
  begin(row) {
    const tab = this.tab ?? new URLSearchParams(location.hash.split("?")[1] ?? "").get("tab") ?? "activity";
    const task = this.tab === null ? new URLSearchParams(location.hash.split("?")[1] ?? "").get("task") : null;
    this.leave();
    this.session = row.session_id;
    this.url = row.url;
    this.describe(row).catch(this.onProblem);
    this.choose(this.tabs.has(tab) ? tab : "activity", task);
  }

  gone() {
    const ready = this.registry.ready;
    document.title = "sidecar";
    this.title.replaceChildren(foreign(this.id, 140));
    this.leave();
    this.state.replaceChildren();
    this.about.replaceChildren();
    this.description.hidden = true;
    this.facts.replaceChildren();
    this.body.replaceChildren();
    for (const tab of this.tabs.values()) tab.disabled = true;
    this.notices.replaceChildren(el("p", { class: "notice", textContent: ready ? "There is no capsule with this id now." : "Loading …" }));
  }

  tell(row) {
    const told = [];
    if (row.last_error) {
      const served = row.state === "serving" ? "Its last good manifest is served. " : "";
      told.push(el("p", { class: "notice bad" }, el("strong", { textContent: "What is wrong: " }), foreign(row.last_error.message, 2000), served ? el("span", { class: "sub", textContent: served }) : null));
    }
    for (const warning of row.warnings.slice(0, MOST_WARNINGS)) told.push(el("p", { class: "notice warn" }, foreign(warning, 1000)));
    if (row.warnings.length > MOST_WARNINGS) told.push(el("p", { class: "notice warn", textContent: `and ${plural(row.warnings.length - MOST_WARNINGS, "more warning")}` }));
    this.notices.replaceChildren(...told);
  }

  know(row) {
    const facts = [
      ["Address", row.url && [el("code", {}, foreign(row.url, 120)), copyButton(() => row.url, "address")]],
      ["Session", row.session_id && [el("code", {}, row.session_id), copyButton(() => row.session_id, "session")]],
      ["Directory", [el("code", {}, foreign(row.path, 400))]],
      ["Worked on by", row.backend && [shown(row.backend, 20) + (row.workers ? `, ${plural(row.workers, "worker")}` : row.backend === "inbox" ? ", no worker" : "")]],
      ["Tools", row.tool_count > 0 && [tags(row.tools, row.tool_count)]],
      ["Planes", row.planes.length > 0 && [tags(row.planes, row.planes.length)]],
    ];
    this.facts.replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", { textContent: name }), el("dd", {}, ...value))));
  }

  /** Show what the capsule says of itself, from its card. */
  async describe(row) {
    this.description.hidden = true;
    if (row.state !== "serving") return;
    this.looking = new AbortController();
    const { cards } = await call("GET", `/api/capsules/${encodeURIComponent(row.id)}/cards`, { signal: this.looking.signal });
    const said = cards.map(({ card }) => card.description).find((text) => typeof text === "string");
    if (!said || said === `Murmur capsule ${row.name} ${row.version}`) return; // what stands for none
    const text = el("p", { class: "clamp" }, el("bdi", { textContent: shownLines(said, MOST_DESCRIPTION) }));
    this.description.replaceChildren(text);
    this.description.hidden = false;
    if (text.scrollHeight <= text.clientHeight + 4) return;
    const more = el("button", { type: "button", class: "quiet", "aria-expanded": "false", textContent: "Show all of it" });
    more.addEventListener("click", () => {
      const open = text.classList.toggle("clamp");
      more.setAttribute("aria-expanded", String(!open));
      say(more, open ? "Show all of it" : "Show less");
    });
    this.description.append(more);
  }
}

function tags(names, count) {
  const shownTags = names.map((name) => el("li", { class: "tag" }, foreign(name, 60)));
  if (count > names.length) shownTags.push(el("li", { class: "tag more", textContent: `+${count - names.length}` }));
  return el("ul", { class: "tags" }, ...shownTags);
}
