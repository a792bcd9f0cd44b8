// What a stream said, within bounds: so many entries, so many characters, whatever a worker writes.

const MOST_ENTRIES = 400;
const MOST_TEXT = 64 * 1024;
const MOST_ALL = 512 * 1024;

/** One thing that was said: `kind` is text, thinking, tool, status, sent or note. `left` counts characters that are shown no more. */
class Entry {
  constructor(kind, task, set) {
    Object.assign(this, { kind, task, text: "", left: 0, ...set });
  }
}

export class Transcript {
  constructor() {
    this.entries = [];
    this.changed = new Set();
    this.dropped = 0;
    this.size = 0;
  }

  /** Take in a frame of the murmur dialect; `cut` is how much of its data was left out, `raw` is how it begins. */
  add(event, data, cut, raw) {
    if (cut) this.note(`A frame was too long to be shown (${raw.length + cut} characters).`);
    else if (event === "text" || event === "thinking") this.say(event, data);
    else if (event === "artifact") this.tool(data);
    else if (event === "status") this.status(data);
    else if (event === "lagged") this.note(`${data.missed} frames came faster than they could be shown.`);
    else if (event === "gap") this.note("What was before is not kept any more.");
    else if (event === "error") this.note(data.error);
  }

  say(kind, data) {
    let last = this.entries.at(-1);
    if (last?.kind !== kind || last.task !== data.id || last.over) last = this.push(new Entry(kind, data.id, {}));
    this.append(last, data.text);
    last.over = data.final;
    if (data.final && last.text === "" && !last.left) this.remove(last);
  }

  tool(data) {
    const { tool_name, content, is_error, duration_ms, exit_code, truncated } = data.artifact;
    const entry = this.push(new Entry("tool", data.id, { title: tool_name, bad: is_error, duration: duration_ms, exit: exit_code, truncated }));
    this.append(entry, content);
  }

  status(data) {
    const { state, message } = data.status;
    const entry = this.push(new Entry("status", data.id, { state, final: data.final }));
    this.append(entry, message ?? "");
  }

  /** Take in what was sent to the worker. */
  sent(task, text) {
    this.append(this.push(new Entry("sent", task, {})), text);
  }

  note(text) {
    this.append(this.push(new Entry("note", null, {})), text);
  }

  push(entry) {
    this.entries.push(entry);
    this.changed.add(entry);
    while (this.entries.length > MOST_ENTRIES) this.drop();
    return entry;
  }

  append(entry, text) {
    const said = String(text ?? "");
    const whole = entry.text.length + said.length;
    // the end of what is said matters most; a text that is many times too long is not put together first
    entry.text = (said.length >= MOST_TEXT ? said : entry.text + said).slice(-MOST_TEXT);
    entry.left += whole - entry.text.length;
    this.size += said.length - (whole - entry.text.length);
    this.changed.add(entry);
    while (this.size > MOST_ALL && this.entries.length > 1) this.drop();
  }

  remove(entry) {
    this.entries = this.entries.filter((one) => one !== entry);
    this.size -= entry.text.length;
    this.changed.delete(entry);
  }

  drop() {
    const first = this.entries.shift();
    this.size -= first.text.length;
    this.changed.delete(first);
    this.dropped += 1;
  }
}
