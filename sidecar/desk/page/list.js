// All capsules: filter, sort, a page of them at a time, so that thousands weigh no more than fifty.

import { RUNNING, WAITING, address, cell, live, offers, session, tasks, work } from "./cells.js";
import { announce, el, fill, foreign, number, plural, say, shown, stateMark } from "./dom.js";

const PER_PAGE = 50;
const STATES = ["serving", "unbound", "refused", "disabled", "artifact"];
const ORDER = new Map(["refused", "unbound", "serving", "disabled", "artifact"].map((state, i) => [state, i]));
const compare = new Intl.Collator("en", { numeric: true }).compare;

export const needsLook = (row) => row.last_error !== null || row.state === "refused" || row.state === "unbound";
export const calledBy = (row) => row.name ?? row.id;

const SORTS = [
  ["name", "Name", (a, b) => compare(calledBy(a), calledBy(b))],
  ["state", "State", (a, b) => ORDER.get(a.state) - ORDER.get(b.state) || Number(needsLook(b)) - Number(needsLook(a))],
  ["tasks", "Tasks", (a, b) => live(b) - live(a)],
  ["workers", "Workers", (a, b) => b.workers - a.workers],
  ["port", "Address", (a, b) => (a.port ?? 1e9) - (b.port ?? 1e9)],
  ["error", "Newest error", (a, b) => (b.last_error?.at ?? 0) - (a.last_error?.at ?? 0)],
];

const FALLING = new Set(["tasks", "workers", "error"]);

const FILTERS = [
  ["all", "All", () => true],
  ["look", "Need a look", needsLook],
  ["busy", "Busy", (row) => live(row) > 0],
  ...STATES.map((state) => [state, state[0].toUpperCase() + state.slice(1), (row) => row.state === state]),
];

const COLUMNS = [
  ["Capsule", "name"],
  ["State", "state"],
  ["Address", "port"],
  ["Offers", null],
  ["Worked on by", "workers"],
  ["Tasks", "tasks"],
  ["Session", null],
];

export class ListView {
  constructor(section, registry) {
    this.section = section;
    this.registry = registry;
    this.settings = { q: "", only: "all", sort: "name", turned: false, page: 1 };
    this.haystacks = new WeakMap();
    this.shownRows = new Map();
    this.build();
  }

  find(id) {
    return this.section.querySelector(`#${id}`);
  }

  build() {
    this.filter = this.find("filter");
    this.filter.addEventListener("input", () => this.set({ q: this.filter.value, page: 1 }));
    this.filter.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.filter.value) {
        event.preventDefault();
        this.filter.value = "";
        this.set({ q: "", page: 1 });
      }
    });
    this.sort = this.find("sort");
    this.sort.append(...SORTS.map(([key, label]) => new Option(label, key)));
    this.sort.addEventListener("change", () => this.set({ sort: this.sort.value, turned: false, page: 1 }));
    this.pills = new Map();
    for (const [key, label] of FILTERS) {
      const count = el("span", { class: "count" });
      const button = el("button", { class: "pill", type: "button", on: { click: () => this.set({ only: key, page: 1 }) } }, label, count);
      this.pills.set(key, { button, count });
    }
    this.heads = new Map();
    const head = el("tr", { role: "row" });
    for (const [label, key] of COLUMNS) head.append(this.column(label, key));
    this.table = el("table", { class: "capsules", role: "table" }, el("caption", { class: "hidden", textContent: "Capsules" }), el("thead", { role: "rowgroup" }, head));
    this.empty = el("p", { class: "empty" });
  }

  column(label, key) {
    const cell = el("th", { scope: "col", role: "columnheader" });
    if (key === null) {
      cell.textContent = label;
      return cell;
    }
    cell.append(el("button", { type: "button", textContent: label, on: { click: () => this.sortBy(key) } }));
    this.heads.set(key, cell);
    return cell;
  }

  /** Sort by a column, or the other way round where it is sorted by that. */
  sortBy(key) {
    const { sort, turned } = this.settings;
    this.set({ sort: key, turned: key === sort && !turned, page: 1 });
  }

  show(settings) {
    const sort = (settings.get("sort") ?? "name").replace(/^-/, "");
    this.settings = {
      q: settings.get("q") ?? "",
      only: this.pills.has(settings.get("only")) ? settings.get("only") : "all",
      sort: SORTS.some(([key]) => key === sort) ? sort : "name",
      turned: settings.get("sort")?.startsWith("-") ?? false,
      page: Math.max(1, Number.parseInt(settings.get("page") ?? "1", 10) || 1),
    };
    if (this.filter.value !== this.settings.q) this.filter.value = this.settings.q;
    const came = this.section.hidden && this.left;
    this.section.hidden = false;
    document.title = "Capsules · sidecar";
    this.update();
    if (came) (this.back?.isConnected ? this.back : this.find("list-title")).focus();
  }

  hide() {
    this.left = !this.section.hidden || this.left;
    this.section.hidden = true;
  }

  set(change) {
    Object.assign(this.settings, change);
    const said = new URLSearchParams();
    const { q, only, sort, turned, page } = this.settings;
    if (q) said.set("q", q);
    if (only !== "all") said.set("only", only);
    if (sort !== "name" || turned) said.set("sort", (turned ? "-" : "") + sort);
    if (page > 1) said.set("page", String(page));
    history.replaceState(null, "", said.size ? `#/?${said}` : "#/");
    this.update();
  }

  update() {
    if (this.section.hidden) return;
    const rows = [...this.registry.rows.values()];
    this.summarise(rows);
    this.trouble();
    this.count(rows);
    const found = this.chosen(rows);
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    const page = Math.min(this.settings.page, pages);
    const first = (page - 1) * PER_PAGE;
    this.sort.value = this.settings.sort;
    for (const [key, cell] of this.heads) {
      if (key !== this.settings.sort) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", FALLING.has(key) === this.settings.turned ? "ascending" : "descending");
    }
    this.draw(found.slice(first, first + PER_PAGE));
    this.tell(found.length);
    this.turn(page, pages, first, found.length);
  }

  /** Say how many are found, once typing has come to rest. */
  tell(count) {
    const asked = `${this.settings.q} ${this.settings.only}`;
    if (asked === this.asked) return;
    const first = this.asked === undefined;
    this.asked = asked;
    clearTimeout(this.telling);
    if (!first) this.telling = setTimeout(() => announce(`${plural(count, "capsule")} found`), 600);
  }

  chosen(rows) {
    const keep = FILTERS.find(([key]) => key === this.settings.only)[2];
    const words = this.settings.q.toLowerCase().split(/\s+/).filter(Boolean);
    const order = SORTS.find(([key]) => key === this.settings.sort)[2];
    const found = rows.filter((row) => keep(row) && words.every((word) => this.haystack(row).includes(word)));
    const way = this.settings.turned ? -1 : 1;
    return found.sort((a, b) => way * order(a, b) || compare(calledBy(a), calledBy(b)) || compare(a.id, b.id));
  }

  haystack(row) {
    let text = this.haystacks.get(row);
    if (text === undefined) {
      const parts = [row.id, row.name, row.version, row.url, row.session_id, row.path, row.state, row.backend, row.last_error?.message];
      text = [...parts, ...row.tools, ...row.planes].map((part) => String(part ?? "").slice(0, 500)).join("\n").toLowerCase();
      this.haystacks.set(row, text);
    }
    return text;
  }

  summarise(rows) {
    if (!this.registry.ready) {
      say(this.find("summary"), "Loading …");
      return;
    }
    const sum = (state) => rows.reduce((total, row) => total + (row.tasks[state] ?? 0), 0);
    const parts = [`${number(rows.filter((row) => row.state === "serving").length)} of ${number(rows.length)} serving`];
    const look = rows.filter(needsLook).length;
    if (look) parts.push(`${number(look)} ${look === 1 ? "needs" : "need"} a look`);
    const running = sum(RUNNING);
    const waiting = sum(WAITING);
    if (running) parts.push(`${plural(running, "task")} running`);
    if (waiting) parts.push(`${number(waiting)} ${waiting === 1 ? "waits" : "wait"} for an answer`);
    say(this.find("summary"), parts.join(" · "));
  }

  trouble() {
    const told = [];
    const rest = this.registry.rest;
    if (rest?.config.last_error) told.push(["The configuration in force is an older one", rest.config.last_error.message]);
    for (const root of rest?.roots ?? []) if (root.last_error) told.push([`The root ${shown(root.path, 300)}`, root.last_error.message]);
    if (rest && !rest.ready) told.push(["The sidecar is not ready", "it is starting or stopping; /readyz says more"]);
    const key = JSON.stringify(told);
    if (key === this.troubled) return;
    this.troubled = key;
    const notices = told.map(([what, why]) => el("p", { class: "notice bad" }, el("strong", { textContent: `${what}: ` }), foreign(why, 600)));
    this.find("troubles").replaceChildren(...notices);
  }

  count(rows) {
    const wanted = [];
    for (const [key, , keep] of FILTERS) {
      const { button, count } = this.pills.get(key);
      const many = rows.filter(keep).length;
      const on = key === this.settings.only;
      say(count, number(many));
      button.setAttribute("aria-pressed", String(on));
      if (key === "all" || many || on) wanted.push(button);
    }
    fill(this.find("states"), ...wanted);
  }

  draw(rows) {
    const drawn = new Map();
    for (const row of rows) {
      const before = this.shownRows.get(row.id);
      const body = before?.body ?? el("tbody", { role: "rowgroup" });
      if (before?.row !== row) this.write(body, row);
      drawn.set(row.id, { row, body });
    }
    this.shownRows = drawn;
    fill(this.table, this.table.caption, this.table.tHead, ...[...drawn.values()].map(({ body }) => body));
    if (rows.length) fill(this.find("table"), this.table);
    else {
      const nothing = this.registry.rows.size ? "No capsule matches." : "There is no capsule yet: put a directory with a murmur.yaml into a root.";
      say(this.empty, this.registry.ready ? nothing : "Loading …");
      fill(this.find("table"), this.empty);
    }
  }

  write(body, row) {
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.what : null;
    const link = el("a", { class: "name", href: `#/capsules/${encodeURIComponent(row.id)}` }, foreign(calledBy(row), 80));
    link.dataset.what = "name";
    link.addEventListener("click", () => (this.back = link));
    const about = el("div", { class: "sub" });
    if (row.version !== null) about.append(el("span", {}, foreign(row.version, 40)));
    if (row.name !== null && row.name !== row.id) about.append(el("code", {}, foreign(row.id, 60)));
    const cells = [
      el("th", { scope: "row", role: "rowheader" }, link, about),
      cell("State", stateMark(row.state)),
      cell("Address", ...address(row)),
      cell("Offers", offers(row)),
      cell("Worked on by", work(row)),
      cell("Tasks", tasks(row)),
      cell("Session", ...session(row)),
    ];
    const lines = [el("tr", { class: "row", role: "row" }, ...cells)];
    if (row.last_error) {
      const text = el("p", { class: "error" }, foreign(row.last_error.message, 400));
      lines.push(el("tr", { class: "row-error", role: "row" }, el("td", { colSpan: COLUMNS.length, role: "cell" }, text)));
    }
    body.classList.toggle("bad", needsLook(row));
    body.replaceChildren(...lines);
    if (focused) body.querySelector(`[data-what="${focused}"]`)?.focus();
  }

  turn(page, pages, first, total) {
    const pager = this.find("pager");
    pager.hidden = pages < 2;
    if (!this.pagerParts) {
      const go = (step) => () => {
        this.set({ page: this.page + step });
        this.section.scrollIntoView({ block: "start" });
      };
      const button = (label, step) => el("button", { type: "button", textContent: label, on: { click: go(step) } });
      this.pagerParts = { back: button("← Previous", -1), on: button("Next →", 1), where: el("p", { role: "status" }) };
      pager.append(this.pagerParts.back, this.pagerParts.where, this.pagerParts.on);
    }
    this.page = page;
    const { back, on, where } = this.pagerParts;
    back.disabled = page <= 1;
    on.disabled = page >= pages;
    say(where, pages < 2 ? "" : `${number(first + 1)}–${number(Math.min(first + PER_PAGE, total))} of ${number(total)}`);
  }
}
