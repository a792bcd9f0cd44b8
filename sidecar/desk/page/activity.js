// A capsule's tasks and what is said in them: watch, send, answer, cancel.

import { call, follow } from "./api.js";
import { announce, copyButton, el, fill, foreign, moment, number, plural, say, short, shown, shownLines, stateMark } from "./dom.js";
import { Transcript } from "./transcript.js";

/** What this page sent, by task: streams carry what a worker says alone. */
const sent = new Map();
const MOST_SENT = 200;

function remember(task, text) {
  sent.set(task, [...(sent.get(task) ?? []), text]);
  while (sent.size > MOST_SENT) sent.delete(sent.keys().next().value);
}

const LIVE = new Set(["submitted", "working", "input-required"]);
const TAIL = 200;
const FLUSH = 60;
const TASKS_PAUSE = 300;
const AGAIN = 1500;
const SHORT = 300; // characters of what a tool said that are shown without being asked for

export class Activity {
  constructor(body, { row, onProblem, go }) {
    this.row = row;
    this.onProblem = onProblem;
    this.go = go;
    this.base = `/api/capsules/${encodeURIComponent(row.id)}`;
    this.tasks = [];
    this.task = undefined;
    this.ends = new AbortController();
    this.build(body);
    if (row.state === "serving") this.refresh();
    else this.tellAway();
  }

  close() {
    this.ends.abort();
    this.stream?.abort();
    clearTimeout(this.flushing);
    clearTimeout(this.refreshing);
  }

  update(row) {
    const before = JSON.stringify(this.row.tasks);
    this.row = row;
    if (JSON.stringify(row.tasks) !== before) this.refreshSoon();
  }

  build(body) {
    this.heading = el("h2", { id: "stream-title" });
    this.mark = el("span", {});
    this.cancel = el("button", { type: "button", class: "danger", textContent: "Cancel the task", hidden: true, on: { click: () => this.stop() } });
    this.whole = el("button", { type: "button", class: "quiet", textContent: "Show the whole session", hidden: true, on: { click: () => this.go(null) } });
    this.log = el("div", { class: "log", role: "log", "aria-live": "off", "aria-labelledby": "stream-title", tabIndex: 0 });
    this.list = el("ul", { class: "tasks" });
    this.waiting = el("p", { class: "notice ask", hidden: true });
    this.question = el("div", { class: "question", hidden: true });
    this.label = el("label", { for: "message" });
    this.text = el("textarea", { id: "message", rows: 3 });
    this.hint = el("p", { class: "sub", textContent: "Ctrl + Enter sends." });
    this.send = el("button", { type: "submit", class: "primary" });
    const form = el("form", { class: "composer", on: { submit: (event) => this.submit(event) } }, this.question, this.label, this.text, el("div", { class: "actions" }, this.hint, this.send));
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    this.form = form;
    body.append(
      el(
        "div",
        { class: "activity" },
        el("section", { class: "stream", "aria-labelledby": "stream-title" }, el("div", { class: "stream-head" }, this.heading, this.mark, el("span", { class: "grow" }), this.whole, this.cancel), this.waiting, this.log, form),
        el("aside", { class: "side", "aria-labelledby": "tasks-title" }, el("h2", { id: "tasks-title", textContent: "Tasks" }), this.list),
      ),
    );
  }

  tellAway() {
    this.form.hidden = true;
    this.heading.textContent = "Not served";
    this.log.replaceChildren(el("p", { class: "empty", textContent: "The capsule is not served now, so there is nothing to watch and nobody to send to." }));
    this.list.replaceChildren();
  }

  /** Watch a task by its id, or with null the whole session. */
  watch(task) {
    if (this.row.state !== "serving" || task === this.task) return;
    this.task = task;
    this.transcript = new Transcript();
    this.nodes = new Map();
    this.log.replaceChildren(el("p", { class: "empty", textContent: "Nothing is said yet." }));
    this.heading.textContent = task === null ? "Whole session" : "Task";
    this.prompt = null;
    const first = sent.get(task)?.[0];
    if (first !== undefined) {
      this.transcript.sent(task, first);
      this.flushSoon();
    }
    this.stream?.abort();
    this.stream = new AbortController();
    this.keepFollowing(task, this.stream.signal).catch(this.onProblem);
    this.show();
  }

  async keepFollowing(task, signal) {
    let last = null;
    let over = false;
    const query = task === null ? `tail=${TAIL}` : `task=${encodeURIComponent(task)}`;
    while (!signal.aborted && !over) {
      try {
        await follow(`${this.base}/stream?${query}`, {
          signal,
          headers: last === null ? {} : { "last-event-id": last },
          onFrame: (event, data, id, cut, raw) => {
            last = id ?? last;
            if (event === "status") this.refreshSoon();
            over ||= task !== null && event === "status" && data?.final === true;
            this.transcript.add(event, data, cut, raw);
            this.flushSoon();
          },
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 404) throw error;
      }
      if (task !== null && this.current() && !LIVE.has(this.current().state)) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  current() {
    return this.tasks.find((one) => one.id === this.task);
  }

  // What was said

  flushSoon() {
    this.flushing ??= setTimeout(() => {
      this.flushing = undefined;
      this.flush();
    }, FLUSH);
  }

  flush() {
    const { entries, changed, dropped } = this.transcript;
    const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
    const nodes = new Map();
    let task = null;
    for (const entry of entries) {
      let node = this.nodes.get(entry);
      if (!node || changed.has(entry)) node = written(entry, node);
      const label = this.task === null && entry.task !== null && entry.task !== task;
      node.querySelector(":scope > .of")?.remove();
      if (label) node.prepend(this.of(entry.task));
      task = entry.task ?? task;
      nodes.set(entry, node);
    }
    changed.clear();
    this.nodes = nodes;
    const before = dropped ? [this.earlier(dropped)] : [];
    if (entries.length) fill(this.log, ...before, ...nodes.values());
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  earlier(count) {
    this.earlierNote ??= el("p", { class: "entry note" });
    say(this.earlierNote, `${plural(count, "earlier entry", "earlier entries")} left out`);
    return this.earlierNote;
  }

  of(task) {
    return el("p", { class: "of" }, el("button", { type: "button", class: "link mono", textContent: short(task), "aria-label": `Show task ${shown(task, 80)} alone`, on: { click: () => this.go(task) } }));
  }

  // The tasks

  refreshSoon() {
    this.refreshing ??= setTimeout(() => {
      this.refreshing = undefined;
      this.refresh();
    }, TASKS_PAUSE);
  }

  async refresh() {
    try {
      const { tasks } = await call("GET", `${this.base}/tasks`, { signal: this.ends.signal });
      const before = this.current()?.state;
      this.tasks = tasks;
      const now = this.current()?.state;
      if (now && before && now !== before) announce(`The task is ${now}`);
      await this.readPrompt();
      this.show();
    } catch (error) {
      if (error.status !== 503) this.onProblem(error);
    }
  }

  async readPrompt() {
    const task = this.current();
    if (task?.state !== "input-required") {
      this.prompt = null;
      return;
    }
    const whole = await call("GET", `${this.base}/tasks/${encodeURIComponent(task.id)}`, { signal: this.ends.signal });
    this.prompt = whole.artifacts?.[0]?.parts?.[0]?.text ?? "";
  }

  show() {
    const task = this.current();
    const asks = this.tasks.filter((one) => one.state === "input-required");
    const answering = task?.state === "input-required";
    this.mark.replaceChildren(...(task ? [stateMark(task.state)] : []));
    if (this.task !== null && this.task !== undefined) this.heading.replaceChildren("Task ", el("code", { class: "mono", textContent: short(this.task) }), copyButton(() => this.task, "the task's id"));
    this.whole.hidden = this.task === null;
    this.cancel.hidden = !(task && LIVE.has(task.state));
    this.question.hidden = !answering;
    if (answering) this.question.replaceChildren(el("p", { class: "sub", textContent: "The worker asks:" }), el("p", { class: "said" }, el("bdi", { textContent: shownLines(this.prompt ?? "", 4000) })));
    say(this.label, answering ? "Your answer" : "Send a task");
    say(this.send, answering ? "Answer" : "Send");
    const takes = this.row.methods.includes("message/send");
    this.form.hidden = !takes && !answering;
    this.waiting.hidden = answering || asks.length === 0;
    if (asks.length) this.waiting.replaceChildren(asks.length === 1 ? "A task waits for an answer. " : `${number(asks.length)} tasks wait for an answer. `, el("button", { type: "button", class: "link", textContent: "Answer it", on: { click: () => this.go(asks.at(-1).id) } }));
    if (!this.tasks.length) fill(this.list, el("li", { class: "empty", textContent: takes ? "None yet." : "The capsule takes no tasks." }));
    else this.showTasks();
  }

  showTasks() {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.task : null;
    this.list.replaceChildren(...this.tasks.map((one) => this.item(one)));
    if (focused) [...this.list.querySelectorAll("button")].find((button) => button.dataset.task === focused)?.focus({ preventScroll: true });
  }

  item(task) {
    const button = el("button", { type: "button", class: "task", "aria-pressed": String(task.id === this.task), on: { click: () => this.go(task.id === this.task ? null : task.id) } });
    button.dataset.task = task.id;
    button.append(el("span", { class: "task-head" }, stateMark(task.state), moment(Date.parse(task.created_at))), el("code", { class: "mono dim", textContent: short(task.id) }));
    if (task.status) button.append(el("span", { class: "task-status" }, foreign(task.status, 140)));
    return el("li", {}, button);
  }

  // What can be done

  async submit(event) {
    event.preventDefault();
    const text = this.text.value;
    if (!text.trim() || this.send.disabled) return;
    const answering = this.current()?.state === "input-required" ? this.task : undefined;
    this.send.disabled = true;
    try {
      const task = await call("POST", `${this.base}/messages`, { body: answering ? { text, task_id: answering } : { text } });
      this.text.value = "";
      remember(task.id, text);
      if (answering) this.transcript.sent(task.id, text);
      if (task.status.state === "rejected") {
        const why = task.status.message?.parts?.[0]?.text ?? "";
        this.onProblem(new Error(`The task was not taken: ${why}`));
      } else {
        announce(answering ? "Answer sent" : "Task sent");
        if (!answering) this.go(task.id);
      }
      await this.refresh();
    } catch (error) {
      this.onProblem(error);
    } finally {
      this.send.disabled = false;
    }
  }

  async stop() {
    this.cancel.disabled = true;
    try {
      await call("POST", `${this.base}/tasks/${encodeURIComponent(this.task)}/cancel`);
      await this.refresh();
    } catch (error) {
      this.onProblem(error);
    } finally {
      this.cancel.disabled = false;
    }
  }
}

/** Write an entry into its element, or into a new one. */
function written(entry, before) {
  const node = before ?? el("div", { class: `entry ${entry.kind}` });
  const text = shownLines(entry.text, 1e6);
  const left = entry.left ? `${number(entry.left)} characters before this are left out\n` : "";
  if (entry.kind === "status") {
    node.replaceChildren(stateMark(entry.state), el("bdi", { class: "sub", textContent: shown(entry.text, 600) }));
  } else if (entry.kind === "tool") {
    const facts = [entry.bad ? "failed" : null, Number.isInteger(entry.exit) ? `exit ${entry.exit}` : null, entry.duration ? `${number(entry.duration)} ms` : null, entry.truncated ? "cut short" : null].filter(Boolean);
    const open = node.querySelector("details")?.open ?? entry.text.length < SHORT;
    const more = el("details", { open }, el("summary", {}, foreign(entry.title ?? "", 80), el("span", { class: "sub", textContent: facts.join(" · ") })), el("pre", { class: "code", tabIndex: 0 }, left, el("bdi", { textContent: text })));
    node.classList.toggle("bad", Boolean(entry.bad));
    node.replaceChildren(more);
  } else {
    const parts = [];
    if (entry.kind === "sent") parts.push(el("p", { class: "label", textContent: "You" }));
    if (entry.kind === "thinking") parts.push(el("p", { class: "label", textContent: "Thinking" }));
    if (left) parts.push(el("p", { class: "sub", textContent: left }));
    parts.push(el("p", { class: "said" }, el("bdi", { textContent: text })));
    node.replaceChildren(...parts);
  }
  return node;
}
