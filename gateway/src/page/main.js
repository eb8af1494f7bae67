// The live page: asks this node for what is so, follows what happens, and shows both.
//
// All state is here, in one value; each round replaces what it learned and shows the whole again. The
// parts keep what has not changed, so that showing is cheap and the focus stays where it is.

import { ApiError, endpointPath, hasToken, keep, look } from "./api.js";
import { mark, refill, say, shape, soon } from "./dom.js";
import { Explain } from "./explain.js";
import { showBanners, showFacts, showMembers } from "./fleet.js";
import { Matrix } from "./matrix.js";
import { manage, override, reload } from "./orders.js";
import { Poll } from "./poll.js";
import { closesBeside } from "./sheet.js";
import { Stream } from "./stream.js";
import { Timeline } from "./timeline.js";
import { compare, headline, listOf, ordered, row } from "./view.js";
import { age } from "./words.js";

/** The configuration changes seldom; it is asked for at this distance, in ms. */
const CONFIG_EVERY = 10_000;
/** From so many endpoints on, only those that are out are asked for each round, and all at a distance. */
const MANY = 1_000;
const ALL_EVERY = 15_000;
/** All of them may take a tenth of the time at most. */
const ALL_REST = 10;
/** Those that have come back are asked for one by one, up to so many. */
const BACK_MAX = 8;
/** How long a message stays, in ms. */
const MESSAGE = 6_000;
/** From this age on, in ms, nothing is told as what is so: unseen, a round is due each minute or oftener. */
const OLD_AFTER = 120_000;
const MINUTE = 60_000;
const THEMES = ["auto", "light", "dark"];

const at = (id) => document.getElementById(id);
const state = { node: "", role: null, cluster: null, members: [], endpoints: [], allAt: -Infinity, allTook: 0, rows: [], config: null, configAt: -Infinity, at: NaN, link: { failed: "" } };

const timeline = new Timeline();
const poll = new Poll(round);
const hurry = soon(80, () => poll.soon());
const stream = new Stream((event) => {
  timeline.add(event);
  hurry();
}, (isFollowing) => timeline.follow(isFollowing));
const explain = new Explain((key) => order(key));
const matrix = new Matrix({ open: (key) => explain.open(key, find(key)?.endpoint ?? {}), order });

/** One look at everything, for `Poll`. Throws if the node does not answer. */
async function round() {
  // Each try without a token counts as a wrong one.
  if (at("sign-in").open) return 0;
  try {
    if (state.role === null || state.link.failed) state.role = await whoami();
    // One after the other: a page takes one of the node's connections for this, not three.
    const cluster = await look("cluster");
    const members = await look("members");
    const { allAt } = state;
    const endpoints = await lookAtEndpoints();
    const isBack = state.link.failed !== "";
    Object.assign(state, { cluster, members: ordered(members.members), endpoints, at: performance.now(), link: { failed: "" } });
    state.node = String(cluster.node ?? "");
    if (isBack) stream.restart();
    if (state.at - state.configAt > CONFIG_EVERY) await lookAtConfig();
    show(true);
    return allAt === state.allAt || endpoints.length < MANY ? undefined : 0;
  } catch (problem) {
    if (!(problem instanceof ApiError)) console.error(problem);
    // What answers after a while may be another process, with other tokens.
    if (problem.status === 401) {
      state.role = null;
      state.link = { failed: "it asks for a token", isShut: true };
      askForToken();
    } else state.link = { failed: String(problem.message), isRefusal: problem.status > 0 };
    show(false);
    throw problem;
  }
}

/** All endpoints; or where they are many, those that are out put in their places among the others. */
async function lookAtEndpoints() {
  if (isPartly()) {
    const fresh = new Map(seen(await look("endpoints?state=out")).map((one) => [one.endpoint, one]));
    const back = state.endpoints.filter((one) => one.in_rotation === false && !fresh.has(one.endpoint));
    if (back.length <= BACK_MAX) {
      for (const { endpoint } of back) {
        const [one] = seen({ endpoints: [await look(endpointPath(endpoint))] });
        fresh.set(endpoint, one);
      }
      return state.endpoints.map((one) => fresh.get(one.endpoint) ?? one);
    }
  }
  const began = performance.now();
  const all = seen(await look("endpoints"));
  state.allAt = performance.now();
  state.allTook = state.allAt - began;
  return all;
}

/** Whether those that are out are enough to ask for. */
function isPartly() {
  const since = performance.now() - state.allAt;
  return state.endpoints.length >= MANY && since < Math.max(ALL_EVERY, state.allTook * ALL_REST);
}

/** The rows of an answer, each with the moment at which it was so. */
function seen(answer) {
  const now = performance.now();
  return listOf(answer.endpoints).map((one) => ({ ...one, seen_at: now }));
}

async function whoami() {
  try {
    return (await look("whoami")).role === "read" ? "read" : "full";
  } catch (problem) {
    if (problem.status === 404) return "full";
    throw problem;
  }
}

/** An older node does not tell its configuration; that is no failure of the round. */
async function lookAtConfig() {
  state.configAt = performance.now();
  try {
    state.config = await look("config");
  } catch {
    state.config = null;
  }
}

function find(key) {
  return state.rows.find((one) => one.key === key);
}

function show(isFresh) {
  const elapsed = performance.now() - state.at;
  mark(document.body, "data-role", state.role ?? "none");
  at("role").hidden = state.role !== "read";
  at("sign-out").hidden = !hasToken();
  mark(document.body, "data-stale", state.link.failed ? "yes" : null);
  showBanners(state, elapsed, () => poll.now());
  showPulse(elapsed);
  if (!state.cluster) {
    showTitle();
    return;
  }
  state.rows = state.endpoints.map((one) => row(one, performance.now() - one.seen_at)).sort(compare);
  showTitle();
  showHeadline();
  say(at("node"), state.node);
  showFacts(state.cluster, state.members, state.config, () => {
    if (state.role === "full") reload(state.config, reloaded);
  });
  showMembers(state.members, elapsed, (id) => {
    const member = state.members.find((one) => String(one.id) === id);
    if (member && state.role === "full") manage(member, done);
  });
  matrix.show(state.rows, state.members, isFresh);
}

/** Whether what is shown may be otherwise by this time. */
function isOld() {
  return state.link.failed !== "" || performance.now() - state.at > OLD_AFTER;
}

/** The tab's title and icon: all that is seen of a page in the background. */
function showTitle() {
  const out = state.rows.filter((one) => one.isOut).length;
  const silence = `no news for ${Math.floor((performance.now() - state.at) / MINUTE)} min`;
  const lost = state.link.isShut ? "signed out" : state.link.failed ? "not connected" : silence;
  const told = isOld() ? lost : !state.cluster ? "" : out > 0 ? `${out} out` : "all in";
  const title = [told, state.node, "quorumgate"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
  mark(at("icon"), "href", `page/${isOld() || !state.cluster ? "lost" : out > 0 ? "out" : "in"}.svg`);
}

function showHeadline() {
  const told = headline(state.rows, state.members);
  const wasSo = isOld();
  const level = wasSo ? "lost" : told.level;
  // What is not known to be so any more is told as what was so.
  say(at("headline"), wasSo ? told.title.replace(/ (is|are) /, (_, verb) => (verb === "is" ? " was " : " were ")) : told.title);
  say(at("subline"), wasSo ? `When ${state.node} last answered. ${told.sub}` : told.sub);
  mark(at("hero-shape"), "data-level", level);
  refill(at("hero-shape"), level, () => [...shape(level === "wait" ? "none" : level, level).children]);
}

function showPulse(elapsed) {
  const isLive = Number.isFinite(elapsed);
  mark(at("pulse"), "data-state", isOld() ? "lost" : isLive ? "live" : "wait");
  const since = isLive ? `, ${age(elapsed)} old` : "";
  const lost = state.link.isShut ? "signed out" : "not connected";
  say(at("pulse-text"), isOld() ? `${lost}${since}` : !isLive ? "connecting" : elapsed > 3_000 ? `live${since}` : "live");
}

function order(key) {
  const found = find(key);
  if (found && state.role === "full") override(found, done);
}

/** Says what a reload came to; the configuration is another. */
function reloaded(text) {
  state.configAt = -Infinity;
  done(text);
}

/** Says what was done, and looks at what has become of it. */
function done(text) {
  const place = at("said");
  say(place, text);
  mark(place, "data-shown", "yes");
  clearTimeout(done.timer);
  done.timer = setTimeout(() => {
    mark(place, "data-shown", null);
    say(place, "");
  }, MESSAGE);
  poll.now();
}

function askForToken() {
  const dialog = at("sign-in");
  if (dialog.open) return;
  for (const other of document.querySelectorAll("dialog[open]")) other.close();
  at("sign-in-error").hidden = !hasToken();
  say(at("sign-in-error"), "This token is not known here.");
  dialog.showModal();
  at("token").focus();
}

function signIn(event) {
  event.preventDefault();
  // Only what a header can carry; the rest of a token pasted from a terminal is its line end.
  keep(at("token").value.trim().replace(/[^\x21-\x7e]/g, ""));
  at("token").value = "";
  at("sign-in").close();
  state.role = null;
  poll.now();
}

function setTheme(theme) {
  const root = document.documentElement;
  mark(root, "data-theme", theme === "auto" ? null : theme);
  say(at("theme"), `Theme: ${theme}`);
}

function turnTheme() {
  const theme = THEMES[(THEMES.indexOf(localStorage.getItem("quorumgate-theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("quorumgate-theme", theme);
  setTheme(theme);
}

/** `/` leads to the filter, Esc empties it. */
function shortcut(event) {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (event.key === "/" && !isTyping && !document.querySelector("dialog[open]") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    at("filter").focus();
  }
  if (event.key === "Escape" && isTyping && event.target.type === "search") {
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
  }
}

setTheme(THEMES.includes(localStorage.getItem("quorumgate-theme")) ? localStorage.getItem("quorumgate-theme") : "auto");
at("theme").addEventListener("click", turnTheme);
at("sign-in-form").addEventListener("submit", signIn);
// Without a token there is nothing to go back to.
at("sign-in").addEventListener("cancel", (event) => event.preventDefault());
at("sign-out").addEventListener("click", () => {
  keep("");
  location.reload();
});
closesBeside(at("order"));
document.addEventListener("keydown", shortcut);
// Ages and countdowns go on between two rounds, and while the node does not answer.
setInterval(() => {
  if (document.hidden) showTitle();
  else if (performance.now() - state.at > 900) show(false);
}, 1_000);
poll.now();
stream.restart();
