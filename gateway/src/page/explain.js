// The full why of one endpoint, kept fresh while it is open: the verdict, what happens next, who votes
// what on which evidence, what this node saw itself, and what happened lately.

import { endpointPath, look } from "./api.js";
import { el, keyed, mark, refill, say, shape } from "./dom.js";
import { backText, cell, listOf, row, weightText } from "./view.js";
import { closesBeside } from "./sheet.js";
import { age, count, figure, isFigure, latency, moment, sentence, span } from "./words.js";

const EVERY = 1_000;
/** Rows of a list in the panel. */
const ROWS_MAX = 50;

/** The panel. `order(key)` overrides the endpoint that it shows. */
export class Explain {
  #dialog = document.getElementById("explain");
  #key = null;
  #timer = null;
  #parts = {};

  constructor(order) {
    const close = el("button", { type: "button", class: "quiet", autofocus: true, click: () => this.#dialog.close() }, "Close");
    const act = el("button", { type: "button", class: "act", click: () => order(this.#key) }, "Override");
    const part = (name, node) => (this.#parts[name] = node);
    const section = (title, node) => el("section", {}, el("h3", {}, title), node);
    this.#dialog.append(
      el("div", { class: "panel-head" }, el("div", {}, part("title", el("h2", { id: "explain-title" })), part("badge", el("span", { class: "badge" }))), act, close),
      el("div", { class: "panel-body", tabindex: "0", role: "region", "aria-labelledby": "explain-title" },
        part("error", el("p", { class: "error", role: "alert", hidden: true })),
        part("verdict", el("p", { class: "verdict" })),
        part("next", el("p", { class: "next" })),
        section("Votes", part("votes", el("ul", { class: "votes" }))),
        part("novotes", el("p", { class: "faint" }, "No member has cast a vote.")),
        part("notes", el("ul", { class: "plain notes" })),
        section("What this node saw itself", part("seen", el("dl", { class: "pairs" }))),
        section("What the others saw", part("windows", el("ul", { class: "plain" }))),
        section("Circuit", part("facts", el("dl", { class: "pairs" }))),
        part("tenants", el("section", { hidden: true })),
        section("Lately", part("history", el("ol", { class: "plain history" })))),
    );
    this.#dialog.addEventListener("close", () => {
      clearTimeout(this.#timer);
      this.#key = null;
    });
    closesBeside(this.#dialog);
  }

  /** Opens the panel; `known` is the endpoint as the list has it, shown until the answer is there. */
  open(key, known) {
    clearTimeout(this.#timer);
    this.#key = key;
    say(this.#parts.title, key);
    this.#parts.error.hidden = true;
    this.#show({ ...known, history: [], evidence: {} });
    this.#dialog.showModal();
    void this.#round(key);
  }

  /** Whether it shows anything. */
  get isOpen() {
    return this.#key !== null;
  }

  async #round(key) {
    const { error } = this.#parts;
    try {
      const answer = document.hidden ? null : await look(`${endpointPath(key)}/explain`);
      if (this.#key !== key) return;
      if (answer) this.#show(answer);
      error.hidden = true;
    } catch (problem) {
      if (this.#key !== key) return;
      say(error, `What is shown is old: ${problem.message}`);
      error.hidden = false;
    }
    this.#timer = setTimeout(() => void this.#round(key), EVERY);
  }

  #show(answer) {
    const { badge, verdict, next, novotes } = this.#parts;
    const one = row(answer);
    mark(badge, "data-level", one.level);
    refill(badge, one.what, () => [shape(one.level, one.level), one.badge]);
    say(verdict, `${sentence(answer.verdict || one.why || "in: nothing is held against it")}.`);
    const after = answer.next && answer.next !== "nothing" ? readable(answer.next) : backText(one.back);
    say(next, after ? `Next: ${after}.` : "Next: nothing, while it stays well.");
    novotes.hidden = listOf(answer.votes).length > 0;
    this.#showVotes(answer);
    this.#showSeen(answer);
    this.#showFacts(answer);
    this.#showTenants(answer.tenants);
    this.#showHistory(answer);
  }

  #showVotes(answer) {
    keyed(this.#parts.votes, listOf(answer.votes).slice(0, ROWS_MAX), {
      key: (vote) => String(vote.voter),
      make: () => el("li", {}, el("span", { class: "vote-shape" }), el("span", {}, el("b"), el("span"), el("span", { class: "faint" }))),
      update: (node, vote) => {
        const shown = cell(answer, { id: vote.voter, state: "live" });
        const kind = shown.kind === "none" ? "lost" : shown.kind;
        const [drawn, text] = node.children;
        refill(drawn, kind, () => [shape(kind, kind)]);
        say(text.children[0], vote.voter);
        say(text.children[1], ` ${weightText(vote)}, ${String(vote.basis ?? "").replaceAll("_", " ")}, ${age(vote.age_ms)}: ${vote.reason || "no reason given"}`);
        say(text.children[2], evidence(vote.evidence ?? {}));
      },
    });
    const notes = listOf(answer.notes).slice(0, ROWS_MAX).map((note) => sentence(note.message));
    refill(this.#parts.notes, notes.join("\n"), () => notes.map((note) => el("li", {}, note)));
    const windows = listOf(answer.windows).slice(0, ROWS_MAX);
    const lines = windows.map((one) => `${one.member}: ${evidence(one)}, ${age(one.age_ms)} ago`);
    refill(this.#parts.windows, lines.join("\n"), () => (lines.length > 0 ? lines : ["Nothing is stated while nobody suspects it."]).map((line) => el("li", {}, line)));
  }

  #showSeen(answer) {
    const seen = answer.evidence ?? {};
    pairs(this.#parts.seen, [
      [`Requests in ${span(seen.window_ms)}`, figure(seen.requests)], ["Faults", figure(seen.faults)], ["Faults in a row", figure(seen.streak)],
      ["Successes", figure(seen.successes)], ["Slow pieces", figure(seen.slow_pieces)],
    ]);
  }

  #showFacts(answer) {
    const { local = {}, cluster = {}, latency: paces = {} } = answer;
    const share = answer.open_share;
    pairs(this.#parts.facts, [
      ["Own breaker", [local.state, local.rung, local.mode === "enforce" ? null : local.mode].filter(Boolean).join(", ")],
      ["Held for the fleet", local.held ? "yes" : "no"],
      ["Fleet", `${cluster.state ?? "–"}, incident ${figure(cluster.incident)}`],
      ["Votes", `${figure(cluster.votes_counted)} counted, ${figure(cluster.quorum)} of ${figure(cluster.electorate)} needed`],
      ["Steward", cluster.steward ?? "nobody"],
      ["Cool-down doubled", `${figure(Math.max(cluster.level ?? 0, local.level ?? 0))} times`],
      ["Weight", `${figure(answer.weight_percent)} %`],
      ["In flight", figure(answer.in_flight)],
      ["First token P50, P95", `${latency(paces?.first_token_p50_ms)}, ${latency(paces?.first_token_p95_ms)}`],
      ["Whole answer P50, P95", `${latency(paces?.total_p50_ms)}, ${latency(paces?.total_p95_ms)}`],
      ["Out of the last hour", typeof share === "number" ? `${figure(share * 100)} %` : "–"],
    ]);
  }

  #showTenants(tenants) {
    const place = this.#parts.tenants;
    const out = listOf(tenants?.out).slice(0, ROWS_MAX);
    place.hidden = out.length === 0;
    const lines = out.map((one) => `${one.tenant}: ${one.state}${one.reason ? `, ${one.reason}` : ""}${one.remaining_ms ? `, ${span(one.remaining_ms)} left` : ""}`);
    refill(place, lines.join("\n"), () => [el("h3", {}, `Out for single tenants (by ${tenants?.header ?? "a header"})`), el("ul", { class: "plain" }, ...lines.map((line) => el("li", {}, line)))]);
  }

  #showHistory(answer) {
    const entries = listOf(answer.history).slice(-ROWS_MAX).reverse();
    const lines = entries.map((one) => [moment(one.unix_ms), String(one.scope ?? ""), String(one.what ?? "")]);
    refill(this.#parts.history, JSON.stringify(lines), () => (lines.length > 0 ? lines : [["", "", "Nothing since this node started."]])
      .map(([when, scope, what]) => el("li", {}, el("time", {}, when), el("span", { class: "scope" }, scope), el("span", {}, what))));
  }
}

/** `12345 ms` in a sentence of the API as a person says it. */
function readable(text) {
  return String(text).replace(/(\d+) ms\b/g, (_, ms) => span(Number(ms)));
}

function evidence(seen) {
  const said = [[seen.requests, "request"], [seen.faults, "fault"], [seen.successes, "success", "successes"], [seen.slow_pieces, "slow piece"]];
  return said.map(([many, ...words]) => (isFigure(many) ? count(many, ...words) : `– ${words[0]}`)).join(", ");
}

function pairs(place, all) {
  refill(place, JSON.stringify(all), () => all.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, String(value ?? "–")))));
}
