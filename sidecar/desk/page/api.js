// Calls to the desk. Everything that is read has a limit: what a worker says may be endless.

const KEY = "sidecar-page-key";
const MOST_ANSWER = 4 * 1024 * 1024;
const MOST_LINE = 256 * 1024;
const STRETCH = 12; // milliseconds of work before the page gets its turn

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Whether a session's key is at hand. The cookie that goes with it is out of our reach. */
export function hasKey() {
  return localStorage.getItem(KEY) !== null;
}

export function forgetKey() {
  localStorage.removeItem(KEY);
}

/** Open a session by the token of a link. */
export async function signIn(token) {
  const answer = await call("POST", "/page/sign-in", { body: { link: token } });
  localStorage.setItem(KEY, answer.key);
}

export async function signOut() {
  await call("POST", "/page/sign-out");
  forgetKey();
}

/** Ask, and return the response once its head is there; throws Refused. A proxy may have put the desk below a path. */
export async function ask(method, path, { body, headers = {}, signal } = {}) {
  const key = localStorage.getItem(KEY);
  const response = await fetch(path.slice(1), {
    method,
    signal,
    cache: "no-store",
    redirect: "error",
    headers: {
      ...(key ? { "x-sidecar-page": key } : {}),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.ok) return response;
  const { text } = await readText(response, 64 * 1024);
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    // a proxy's own page: the status says enough
  }
  throw new Refused(response.status, told.error ?? "", told.message ?? `The desk answers ${response.status}.`);
}

/** Ask, and return the JSON of the answer; null where there is no body. */
export async function call(method, path, options) {
  const response = await ask(method, path, options);
  const { text, cut } = await readText(response, MOST_ANSWER);
  if (cut) throw new Refused(response.status, "", "The answer is too big to be shown.");
  return text ? JSON.parse(text) : null;
}

/** Read a body as text, up to so many characters; `cut` says that there is more. */
export async function readText(response, most) {
  if (!response.body) return { text: "", cut: false };
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += done ? decoder.decode() : decoder.decode(value, { stream: true });
    if (text.length > most) {
      await reader.cancel();
      return { text: text.slice(0, most), cut: true };
    }
    if (done) return { text, cut: false };
  }
}

/**
 * Follow a stream of server-sent events until it ends or `signal` says so. `onFrame` gets the event's name, its data, its
 * id, and how many characters of the data were left out, in which case the data are no JSON.
 */
export async function follow(path, { signal, onFrame, onOpen = () => {}, headers = {} }) {
  const response = await ask("GET", path, { signal, headers: { accept: "text/event-stream", ...headers } });
  onOpen();
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const frame = new Frame(onFrame);
  let since = performance.now();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    frame.read(decoder.decode(value, { stream: true }));
    if (performance.now() - since > STRETCH) {
      await new Promise((resolve) => setTimeout(resolve));
      since = performance.now();
    }
  }
}

class Frame {
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.line = "";
    this.left = 0;
    this.begin();
  }

  begin() {
    this.event = "message";
    this.data = "";
    this.id = null;
    this.cut = 0;
  }

  read(text) {
    let start = 0;
    for (;;) {
      const end = text.indexOf("\n", start);
      const part = text.slice(start, end < 0 ? text.length : end);
      const room = MOST_LINE - this.line.length;
      this.line += part.length > room ? part.slice(0, room) : part;
      this.left += Math.max(0, part.length - room);
      if (end < 0) return;
      this.take(this.line);
      this.line = "";
      this.left = 0;
      start = end + 1;
    }
  }

  take(line) {
    if (line === "") {
      if (this.data) this.onFrame(this.event, this.cut ? null : JSON.parse(this.data), this.id, this.cut, this.data);
      this.begin();
      return;
    }
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (colon > 0) this.field(line.slice(0, colon), value);
  }

  field(name, value) {
    if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
    else if (name === "data") {
      this.data = value;
      this.cut = this.left;
    }
  }
}
