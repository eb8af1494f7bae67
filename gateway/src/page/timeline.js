// What happened, newest first: the node's events as they come, with a filter.

import { el, keyed, say, shape, soon } from "./dom.js";
import { count, moment, sentence, span } from "./words.js";

/** Events kept, and shown at a time. The node keeps 1,024. */
const KEPT = 1_024;
const SHOWN = 100;
/** Longest detail of an event that is shown. */
const DETAIL_MAX = 120;

const KINDS = {
  flip: "doubt", breaker: "back", vote: "void", probe: "none", canary: "none",
  member: "held", override: "order", config: "order", drain: "back", redis: "in", gap: "lost",
};

/** The shape of an event that leads somewhere. */
const LEADS = {
  open: "out", close: "in", closed: "in", "half-open": "back", stands: "out", withdrawn: "in", gone: "in",
  abstains: "void", shadow: "void", live: "in", lost: "out", suspect: "doubt", draining: "back", passed: "in", failed: "out", up: "in", away: "doubt",
};

/** The list of events. */
export class Timeline {
  #list = document.getElementById("event-list");
  #note = document.getElementById("event-note");
  #kind = document.getElementById("kind");
  #filter = document.getElementById("event-filter");
  #events = [];
  #known = new Set();
  #isFollowing = null;
  #later = soon(60, () => this.show());

  constructor() {
    for (const kind of Object.keys(KINDS)) this.#kind.append(el("option", { value: kind }, kind));
    this.#kind.addEventListener("change", () => this.show());
    this.#filter.addEventListener("input", () => this.show());
    this.show();
  }

  /** Takes an event in; one that is known already is not shown twice. */
  add(event) {
    const id = String(event.id ?? "");
    if (id && this.#known.has(id)) return;
    this.#known.add(id);
    this.#events.unshift(event);
    if (this.#events.length > KEPT) this.#known.delete(String(this.#events.pop().id ?? ""));
    this.#later();
  }

  /** Notes whether the stream is being followed. */
  follow(isFollowing) {
    this.#isFollowing = isFollowing;
    this.#later();
  }

  /** Shows what the filter lets through. */
  show() {
    const words = this.#filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = this.#kind.value;
    const isWanted = (one) => {
      if (kind && one.kind !== kind) return false;
      const hay = `${one.endpoint ?? ""} ${one.node ?? ""} ${one.what ?? ""} ${one.kind ?? ""}`.toLowerCase();
      return words.every((word) => hay.includes(word));
    };
    const found = words.length > 0 || kind ? this.#events.filter(isWanted) : this.#events;
    keyed(this.#list, found.slice(0, SHOWN), { key: (one) => one, make, update: () => {} });
    const isCut = found.length > SHOWN ? `The newest ${SHOWN} of ${count(found.length, "event")} are shown.` : "";
    const nothing = found.length > 0 ? isCut : this.#events.length > 0 ? "No event matches." : "Nothing has happened since this node started.";
    const broken = this.#isFollowing === false ? "The stream of events is broken; it is taken up again where it broke off." : "";
    say(this.#note, this.#isFollowing === null ? "Waiting for the stream of events." : broken || nothing);
    this.#note.hidden = this.#note.textContent === "";
  }
}

function make(event) {
  const kind = Object.hasOwn(KINDS, event.kind) ? event.kind : "event";
  const isNamed = String(event.what).startsWith(`${event.node} `);
  const place = [event.endpoint, isNamed ? null : event.node].filter(Boolean).map(String);
  const more = details(event);
  return el("li", { class: "event" },
    el("time", { datetime: stamp(event.unix_ms) }, moment(event.unix_ms)),
    el("span", { class: "event-kind" }, shape(level(event, kind), level(event, kind)), kind),
    el("span", { class: "event-text" }, sentence(event.what), more ? el("span", { class: "faint" }, ` ${more}`) : null),
    el("span", { class: "event-place faint" }, place.join(" · ")));
}

/** The shape of an event: a flip or a transition is told by where it leads. */
function level(event, kind) {
  const detail = event.detail ?? {};
  const to = String(detail.direction ?? detail.to ?? detail.state ?? detail.result ?? "");
  const isTold = ["flip", "breaker", "vote", "member", "probe", "redis"].includes(kind);
  return (isTold && Object.hasOwn(LEADS, to) ? LEADS[to] : KINDS[kind]) ?? "none";
}

/** The details that a person wants and the sentence does not have. */
function details(event) {
  const detail = event.detail && typeof event.detail === "object" ? event.detail : {};
  const said = [];
  const has = (value) => (typeof value === "string" && value !== "") || typeof value === "number";
  if (has(detail.flip_ms)) said.push(`within ${span(Number(detail.flip_ms))}`);
  if (has(detail.for_ms)) said.push(`for ${span(Number(detail.for_ms))}`);
  for (const name of ["basis", "reason", "by", "hash"]) {
    const value = has(detail[name]) ? String(detail[name]).replaceAll("_", " ").slice(0, DETAIL_MAX) : "";
    if (value && !String(event.what).includes(value)) said.push(name === "basis" ? value : `${name} ${value}`);
  }
  return said.length > 0 ? `(${said.join(", ")})` : "";
}

function stamp(unix) {
  return typeof unix === "number" && Math.abs(unix) < 8.64e15 ? new Date(unix).toISOString() : null;
}
