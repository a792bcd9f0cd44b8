// The page: signing in, following the registry, and which of the two views is shown.

import { Refused, follow, forgetKey, hasKey, signIn, signOut } from "./api.js";
import { announce, el, say, toast } from "./dom.js";
import { CapsuleView } from "./capsule.js";
import { ListView } from "./list.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;
const RENDER_PAUSE = 100;

/** What is known of the registry: rows by id, and what was told beside them. */
const registry = { rows: new Map(), rest: null, ready: false };

const views = {
  signIn: document.getElementById("sign-in"),
  list: new ListView(document.getElementById("list"), registry),
  capsule: new CapsuleView(document.getElementById("capsule"), registry, onProblem),
};
let following = null;
let due = null;

function onProblem(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Refused && error.status === 401) showSignIn();
  else toast(error.message);
}

// Which view: `#/` with the list's settings, `#/capsules/ID`, or `#link=TOKEN`, which signs in and is gone from the address.

async function route() {
  const hash = location.hash;
  if (hash.startsWith("#link=")) {
    history.replaceState(null, "", "#/");
    await signInBy(hash.slice("#link=".length));
    return;
  }
  if (!following) return;
  const [path, query] = hash.replace(/^#/, "").split("?");
  const [, kind, id] = path.split("/");
  const settings = new URLSearchParams(query ?? "");
  views.signIn.hidden = true;
  if (kind === "capsules" && id) {
    views.list.hide();
    views.capsule.show(decoded(id), settings);
  } else {
    views.capsule.hide();
    views.list.show(settings);
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

window.addEventListener("hashchange", () => route().catch(onProblem));

// Signing in

async function signInBy(token) {
  try {
    await signIn(token);
  } catch (error) {
    if (hasKey()) {
      start(); // an old link, and a session that may still be good
      return;
    }
    showSignIn(error.message);
    return;
  }
  start();
}

function showSignIn(problem = "") {
  following?.abort();
  following = null;
  forgetKey();
  views.list.hide();
  views.capsule.hide();
  registry.rows = new Map();
  registry.ready = false;
  views.signIn.hidden = false;
  document.getElementById("sign-out").hidden = true;
  say(document.getElementById("link-state"), "");
  say(document.getElementById("sign-in-problem"), problem);
  document.title = "Sign in · sidecar";
  document.getElementById("sign-in-title").focus();
}

document.getElementById("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = document.getElementById("sign-in-link");
  const token = input.value.trim().replace(/^.*#link=/, "");
  input.value = "";
  if (token) signInBy(token).catch(onProblem);
});

document.getElementById("sign-out").addEventListener("click", async () => {
  following?.abort(); // the desk would cut it off
  views.capsule.hide();
  try {
    await signOut();
  } catch (error) {
    if (error.status !== 401) {
      onProblem(error);
      start();
      return;
    }
  }
  showSignIn();
  announce("Signed out");
});

// Following the registry: each stream begins with all there is, and goes on with what changes.

function start() {
  following?.abort();
  following = new AbortController();
  document.getElementById("sign-out").hidden = !hasKey();
  keepFollowing(following.signal).catch(onProblem);
  route().catch(onProblem);
}

async function keepFollowing(signal) {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      const fresh = new Set();
      let whole = false;
      await follow("/api/events", {
        signal,
        onOpen: () => {
          pause = FIRST_PAUSE;
        },
        onFrame: (event, data) => {
          if (event === "registry") registry.rest = data;
          if (event !== "capsules" || data === null) return later();
          for (const row of data.capsules) {
            registry.rows.set(row.id, row);
            if (!whole) fresh.add(row.id);
          }
          for (const id of data.gone) registry.rows.delete(id);
          if (!data.more && !whole) {
            whole = true;
            for (const id of registry.rows.keys()) if (!fresh.has(id)) registry.rows.delete(id);
            registry.ready = true;
            live(true);
          }
          later();
        },
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status === 401) {
        showSignIn();
        return;
      }
    }
    live(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

function live(on) {
  const state = document.getElementById("link-state");
  if (state.dataset.on === String(on)) return;
  state.dataset.on = String(on);
  state.replaceChildren(el("span", { class: "dot", "aria-hidden": "true" }), on ? "Live" : "Reconnecting …");
}

function later() {
  due ??= setTimeout(() => {
    due = null;
    views.list.update();
    views.capsule.update();
  }, RENDER_PAUSE);
}

// `/` goes to the filter, as in many lists.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const filter = document.getElementById("filter");
  if (filter.offsetParent === null) return;
  event.preventDefault();
  filter.focus();
});

if (location.hash.startsWith("#link=")) route().catch(onProblem);
else start();
