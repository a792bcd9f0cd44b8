// Tabs to look at: a capsule's files, its cards, and how programs reach it.

import { ask, call, readText } from "./api.js";
import { copyButton, el, fill, foreign, moment, number, plural, say, shown, shownLines, size } from "./dom.js";

const PER_PAGE = 100;
const MOST_LISTING = 4 * 1024 * 1024;
const MOST_PREVIEW = 128 * 1024;
const MOST_CARD = 64 * 1024;
const NOT_TEXT = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f\ufffd]/g;

const base = (row) => `/api/capsules/${encodeURIComponent(row.id)}`;
const pathOf = (path) => path.split("/").map(encodeURIComponent).join("/");
const nothing = (text) => el("p", { class: "empty", textContent: text });

export class Files {
  constructor(body, { row, onProblem }) {
    this.row = row;
    this.onProblem = onProblem;
    this.ends = new AbortController();
    this.entries = [];
    this.page = 0;
    this.body = body;
    if (!row.planes.includes("files")) body.append(nothing("This capsule exports no files: its manifest has no exports.files."));
    else if (row.state !== "serving") body.append(nothing("The capsule is not served now."));
    else {
      this.build();
      this.read().catch(onProblem);
    }
  }

  close() {
    this.ends.abort();
  }

  build() {
    this.filter = el("input", { type: "search", id: "file-filter", placeholder: "Filter files …", autocomplete: "off", spellcheck: false });
    this.filter.addEventListener("input", () => this.draw(0));
    const again = el("button", { type: "button", textContent: "Read again", on: { click: () => this.read().catch(this.onProblem) } });
    this.about = el("p", { class: "muted", role: "status", textContent: "Reading …" });
    this.list = el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Files" });
    this.back = el("button", { type: "button", textContent: "← Previous", on: { click: () => this.draw(this.page - 1) } });
    this.on = el("button", { type: "button", textContent: "Next →", on: { click: () => this.draw(this.page + 1) } });
    this.pager = el("nav", { class: "pager", "aria-label": "Pages of the files", hidden: true }, this.back, this.on);
    this.preview = el("section", { class: "preview", "aria-label": "File", hidden: true });
    this.body.append(el("div", { class: "tools" }, el("div", { class: "field grow" }, el("label", { class: "hidden", for: "file-filter", textContent: "Filter files" }), this.filter), again), this.about, el("div", { class: "files" }, el("div", {}, this.list, this.pager), this.preview));
  }

  async read() {
    const response = await ask("GET", `${base(this.row)}/files`, { signal: this.ends.signal });
    const { text, cut } = await readText(response, MOST_LISTING);
    // of a listing that is too long the first entries are shown: it is cut behind the last whole one
    const listing = JSON.parse(cut ? `${text.slice(0, text.lastIndexOf("},{") + 1)}]}` : text);
    this.entries = listing.entries;
    this.more = cut;
    say(this.about, `${plural(this.entries.length, "file")}${cut ? " and more" : ""} below ${shown(listing.root, 200)}, up to ${size(listing.max_bytes)} each · ${listing.containment_achieved}`);
    this.draw(0);
  }

  draw(page) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.entries.filter(({ path }) => words.every((word) => path.toLowerCase().includes(word)));
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    this.page = Math.min(Math.max(page, 0), pages - 1);
    this.pager.hidden = pages < 2;
    this.back.disabled = this.page === 0;
    this.on.disabled = this.page === pages - 1;
    const rows = found.slice(this.page * PER_PAGE, (this.page + 1) * PER_PAGE).map((entry) => this.line(entry));
    const head = el("thead", {}, el("tr", {}, ...["Path", "Size", "Changed"].map((name) => el("th", { scope: "col", textContent: name }))));
    fill(this.list, rows.length ? el("table", { class: "plain" }, head, el("tbody", {}, ...rows)) : nothing(this.entries.length ? "No file matches." : "There is no file."));
  }

  line(entry) {
    const open = el("button", { type: "button", class: "link mono", on: { click: () => this.open(entry).catch(this.onProblem) } }, foreign(entry.path, 300));
    return el("tr", {}, el("th", { scope: "row" }, open), el("td", { class: "figure", textContent: size(entry.size_bytes) }), el("td", {}, moment(entry.mtime_ms)));
  }

  async open(entry) {
    const title = el("h2", { tabIndex: -1 }, foreign(entry.path, 300));
    const save = el("button", { type: "button", textContent: "Download", on: { click: () => this.save(entry).catch(this.onProblem) } });
    const content = el("div", {}, nothing("Reading …"));
    this.preview.hidden = false;
    this.preview.replaceChildren(title, el("p", { class: "sub mono breaks", textContent: `sha256 ${entry.sha256}` }), el("div", { class: "actions" }, save), content);
    title.focus();
    const response = await ask("GET", `${base(this.row)}/files/${pathOf(entry.path)}`, { signal: this.ends.signal });
    const { text, cut } = await readText(response, MOST_PREVIEW);
    const strange = (text.match(NOT_TEXT) ?? []).length;
    if (strange > text.length / 50) content.replaceChildren(nothing("This is no text; download it to look at it."));
    else content.replaceChildren(el("pre", { class: "code", tabIndex: 0 }, el("bdi", { textContent: shownLines(text, MOST_PREVIEW) })), cut ? el("p", { class: "sub", textContent: "The rest is left out; download it to see all." }) : "");
  }

  async save(entry) {
    const response = await ask("GET", `${base(this.row)}/files/${pathOf(entry.path)}`, { signal: this.ends.signal });
    const url = URL.createObjectURL(new Blob([await response.arrayBuffer()], { type: "application/octet-stream" }));
    el("a", { href: url, download: shown(entry.path.split("/").at(-1), 120) }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

export class Cards {
  constructor(body, { row, onProblem }) {
    this.ends = new AbortController();
    if (row.state !== "serving") body.append(nothing("The capsule is not served now, and has no card."));
    else this.read(body, row).catch(onProblem);
  }

  close() {
    this.ends.abort();
  }

  async read(body, row) {
    const { cards } = await call("GET", `${base(row)}/cards`, { signal: this.ends.signal });
    for (const { view, audience, url, card } of cards) {
      const text = JSON.stringify(card, null, 2);
      body.append(
        el(
          "section",
          { class: "card-view", "aria-label": `Card: ${shown(view, 60)}` },
          el("div", { class: "heading" }, el("h2", { textContent: shown(view, 60) }), el("p", { class: "muted", textContent: `For ${shown(audience, 200)}` })),
          el("p", {}, el("code", { class: "mono breaks" }, foreign(url, 300)), copyButton(() => url, "the card's URL")),
          el("div", { class: "code-box" }, copyButton(() => text, "the card", "Copy"), el("pre", { class: "code", tabIndex: 0 }, el("bdi", { textContent: shownLines(text, MOST_CARD) }))),
        ),
      );
    }
  }
}

export class Connect {
  constructor(body, { row, onProblem }) {
    this.ends = new AbortController();
    if (row.url === null) body.append(nothing("The capsule has no address now."));
    else this.read(body, row).catch(onProblem);
  }

  close() {
    this.ends.abort();
  }

  async read(body, row) {
    const { cards } = await call("GET", `${base(row)}/cards`, { signal: this.ends.signal });
    if (cards.some(({ card }) => Object.keys(card.securitySchemes ?? {}).length)) {
      body.append(el("p", { class: "notice" }, "This capsule asks for a credential: send it along, with curl as ", el("code", { textContent: "-H 'authorization: Bearer KEY'" }), ". ", el("code", { textContent: `sidecar keys create ${row.id}` }), " makes one."));
    }
    for (const [title, about, text] of snippets(row, new Map(cards.map((card) => [card.view, card])))) {
      body.append(el("section", { class: "snippet", "aria-label": title }, el("h2", { textContent: title }), el("p", { class: "muted", textContent: about }), el("div", { class: "code-box" }, copyButton(() => text, `the snippet “${title}”`, "Copy"), el("pre", { class: "code", tabIndex: 0, textContent: shownLines(text, 8000) }))));
    }
  }
}

/**
 * Return what can be pasted: title, what it is for, and the text. Nothing in it is a manifest's, but ids and addresses.
 * `views` are the capsule's cards by the name of their view.
 */
export function snippets(row, views) {
  const url = (views.get("murmur")?.url ?? `http://${row.url}`).replace(/\/\.well-known\/agent-card\.json$/, "");
  const desk = new URL(".", location.href).href.replace(/\/$/, "");
  const id = row.id;
  const message = (method) => `curl -sN ${url}/ -H 'content-type: application/json' -d '{\n  "jsonrpc": "2.0", "id": 1, "method": "${method}",\n  "params": {"message": {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}}\n}'`;
  const found = [["Fetch the card", "What any client sees first.", `curl -s ${url}/.well-known/agent-card.json`]];
  if (row.methods.includes("message/send")) {
    found.push(["Send a task", "In a terminal where the sidecar runs; the reply comes as it is written.", `sidecar send ${id} "hello"`]);
    found.push(["Send a task with curl", "Answered at once; the task goes on by itself.", message("message/send")]);
    found.push(["Stream a task with curl", "Server-sent events, until the task ends.", message("message/stream")]);
  }
  found.push(["Watch the session", "Everything that happens in this capsule, from the first event that is kept.", `curl -sN ${url}/ -H 'content-type: application/json' -d '{"jsonrpc": "2.0", "id": 1, "method": "stream/watch"}'`]);
  if (row.planes.includes("files")) found.push(["List the files", "What the capsule exports.", `curl -s ${url}/resources/files`]);
  if (views.has("a2a 1.0")) {
    found.push([
      "Python, A2A SDK",
      "pip install 'a2a-sdk>=1,<2'",
      `import asyncio\n\nfrom a2a.client import create_client\nfrom a2a.helpers import get_artifact_text, new_text_message\nfrom a2a.types import Role, SendMessageRequest\n\n\nasync def main():\n    async with await create_client("${url}") as client:\n        request = SendMessageRequest(message=new_text_message("hello", role=Role.ROLE_USER))\n        async for event in client.send_message(request):\n            if event.HasField("artifact_update"):\n                print(get_artifact_text(event.artifact_update.artifact), end="")\n\n\nasyncio.run(main())`,
    ]);
    found.push([
      "JavaScript, A2A SDK",
      "npm install @a2a-js/sdk@1",
      `import { randomUUID } from 'node:crypto';\nimport { SendMessageRequest } from '@a2a-js/sdk';\nimport { ClientFactory } from '@a2a-js/sdk/client';\n\nconst client = await new ClientFactory().createFromUrl('${url}');\nconst message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: 'hello' }] };\nfor await (const { payload } of client.sendMessageStream(SendMessageRequest.fromJSON({ message }))) {\n  if (payload.$case !== 'artifactUpdate') continue;\n  for (const part of payload.value.artifact.parts) process.stdout.write(part.content.value);\n}`,
    ]);
  }
  if (views.has("everruns")) {
    found.push([
      "Python, Everruns SDK",
      "pip install 'everruns-sdk>=0.3,<0.4'; without credentials any key will do.",
      `import asyncio\n\nfrom everruns_sdk import AgentClient\n\n\nasync def main():\n    async with AgentClient(agent_url="${views.get("everruns").url}", credential="KEY") as agent:\n        session = await agent.create_session(title="A first conversation")\n        print(await agent.run("hello", session_id=session["id"]))\n\n\nasyncio.run(main())`,
    ]);
  }
  if (row.backend === "inbox") {
    found.push([
      "Do its tasks: a worker in Python",
      "The token is in admin.token in the state directory, or is the configuration's auth.worker_token.",
      `import asyncio\nfrom sidecar.worker import Worker\n\nasync def answer(task):\n    await task.text(f"You said: {task.prompt}")\n\nasyncio.run(Worker("${id}", url="${desk}", token="TOKEN").run(answer))`,
    ]);
  }
  found.push(["Ask the desk", "The operator's view, with the admin token.", `curl -s ${desk}/api/capsules/${encodeURIComponent(id)} -H "authorization: Bearer $(cat STATE/admin.token)"`]);
  return found;
}
