// The endpoints by node: each row says what is so, who says it, why, and when it returns.
//
// A table with a column for each member; on a narrow screen each row becomes a card, and the roles
// written out keep it a table to a screen reader. At most PAGE rows exist at a time.

import { el, keyed, mark, refill, say, shape } from "./dom.js";
import { backText, cell, isMatch } from "./view.js";
import { count } from "./words.js";
import * as spark from "./spark.js";

/** Rows on the page at a time. */
const PAGE = 50;
/** From so many members on a column is as wide as a shape. */
const DENSE_FROM = 9;

const LEGEND = [
  ["out", "votes it out"], ["held", "held out for the fleet"], ["void", "vote does not count"],
  ["lost", "member lost"], ["none", "no vote against it"],
];

/** The table. `open(key)` explains an endpoint, `order(key)` overrides it. */
export class Matrix {
  #box = document.getElementById("matrix");
  #pager = document.getElementById("pager");
  #filter = document.getElementById("filter");
  #only = document.getElementById("only-out");
  #deeds;
  #page = 0;
  #last = null;
  #head = el("tr", { role: "row" });
  #body = el("tbody", { role: "rowgroup" });
  #empty = el("p", { class: "empty", hidden: true });

  constructor(deeds) {
    this.#deeds = deeds;
    const title = el("caption", { class: "sr" }, "Every endpoint with what each node votes; not well ones first");
    this.#box.append(
      el("table", { role: "table" }, title, el("thead", { role: "rowgroup" }, this.#head), this.#body),
      this.#empty,
    );
    const legend = document.getElementById("legend");
    for (const [kind, said] of LEGEND) legend.append(el("span", {}, shape(kind, kind), said));
    const again = () => {
      this.#page = 0;
      if (this.#last) this.show(...this.#last);
    };
    this.#filter.addEventListener("input", again);
    this.#only.addEventListener("change", again);
  }

  /** Shows sorted rows; `isFresh` says that the figures are new and not only older. */
  show(all, members, isFresh) {
    this.#last = [all, members, false];
    const words = this.#filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = (one) => (!this.#only.checked || one.what !== "healthy") && isMatch(one, words);
    const found = words.length > 0 || this.#only.checked ? all.filter(isWanted) : all;
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.#page = Math.min(this.#page, pages - 1);
    const shown = found.slice(this.#page * PAGE, (this.#page + 1) * PAGE);
    mark(this.#box, "data-dense", members.length >= DENSE_FROM ? "yes" : null);
    this.#showHead(members);
    if (isFresh) shown.forEach((one) => spark.note(one.key, one.latency.drawn));
    keyed(this.#body, shown, {
      key: (one) => one.key,
      make: (one) => this.#makeRow(one),
      update: (node, one) => this.#fillRow(node, one, members, isFresh),
    });
    this.#empty.hidden = found.length > 0;
    say(this.#empty, all.length === 0 ? "No endpoint is configured." : "No endpoint matches; Esc in the filter clears it.");
    this.#showPager(found.length, pages);
  }

  #showHead(members) {
    const stamp = JSON.stringify(members.map((one) => [one.id, one.state, one.self, one.muted]));
    refill(this.#head, stamp, () => [
      column("Endpoint", "at-name"),
      column("What is so, who says it, and when it returns", "at-state", "State"),
      column("Latency to the first token, median and 95th percentile", "at-pace", "Latency"),
      ...members.map(memberColumn),
      column("Actions", "at-deeds", ""),
    ]);
  }

  #makeRow(one) {
    const { key } = one;
    const explain = () => this.#deeds.open(key);
    const name = el("button", { type: "button", class: "name", click: explain }, el("span", { class: "pool" }), el("b"));
    const order = el("button", { type: "button", class: "small act", click: () => this.#deeds.order(key) }, "Override", el("span", { class: "sr" }, ` ${key}`));
    const why = el("button", { type: "button", class: "small", click: explain }, "Why?", el("span", { class: "sr" }, ` ${key}`));
    const node = el("tr", { role: "row", class: "row" },
      el("th", { role: "rowheader", scope: "row", class: "at-name" }, name, el("span", { class: "load faint" })),
      el("td", { role: "cell", class: "at-state" },
        el("span", { class: "badge-line" }, el("span", { class: "badge" }), el("span", { class: "back" })),
        el("span", { class: "why" }), el("span", { class: "who faint" })),
      el("td", { role: "cell", class: "at-pace" }, spark.blank(), el("span", { class: "pace" })),
      el("td", { role: "cell", class: "at-deeds" }, el("span", { class: "deeds" }, why, order)),
    );
    say(name.firstChild, one.name === one.key ? "" : `${one.pool} / `);
    say(name.lastChild, one.name);
    return node;
  }

  #fillRow(node, one, members, isFresh) {
    const find = (name) => node.getElementsByClassName(name)[0];
    mark(node, "data-level", one.level);
    say(find("load"), one.load);
    const badge = find("badge");
    mark(badge, "data-level", one.level);
    refill(badge, one.what, () => [shape(one.level, one.level), one.badge]);
    say(find("back"), backText(one.back));
    say(find("why"), one.why);
    say(find("who"), one.who);
    say(find("pace"), one.latency.said);
    if (isFresh) spark.trace(find("spark"), one.key);
    this.#fillCells(node, one, members);
  }

  #fillCells(node, one, members) {
    const cells = [...node.getElementsByClassName("vote")];
    for (const extra of cells.slice(members.length)) extra.remove();
    const end = node.getElementsByClassName("at-deeds")[0];
    members.forEach((member, index) => {
      let place = cells[index];
      if (!place) {
        place = el("td", { role: "cell", class: "vote" }, el("span", { class: "vote-of", "aria-hidden": "true" }),
          el("span", { class: "vote-shape" }), el("span", { class: "vote-word", "aria-hidden": "true" }), el("span", { class: "sr" }));
        end.before(place);
      }
      const { kind, word, said } = cell(one.endpoint, member, one.elapsed);
      const [of, drawn, seen, read] = place.children;
      mark(place, "data-kind", kind);
      mark(place, "title", said);
      say(of, member.id);
      refill(drawn, kind, () => [shape(kind, kind)]);
      say(seen, word);
      say(read, said);
    });
  }

  #showPager(found, pages) {
    this.#pager.hidden = pages < 2;
    const from = this.#page * PAGE;
    const turn = (by) => () => {
      this.#page += by;
      this.#pager.dataset.turned = by;
      this.show(...this.#last);
      const again = this.#pager.querySelector(by < 0 ? "button" : "button:last-of-type");
      (again.disabled ? this.#pager.querySelector("button:enabled") : again).focus();
    };
    refill(this.#pager, `${this.#page} ${found}`, () => [
      el("button", { type: "button", class: "small", disabled: this.#page === 0, click: turn(-1) }, "Previous"),
      el("span", {}, `${from + 1}–${Math.min(found, from + PAGE)} of ${count(found, "endpoint")}`),
      el("button", { type: "button", class: "small", disabled: this.#page >= pages - 1, click: turn(1) }, "Next"),
    ]);
  }
}

function column(said, place, shown = said) {
  const same = shown === said;
  return el("th", { role: "columnheader", scope: "col", class: place },
    el("span", { "aria-hidden": same ? null : "true" }, shown), same ? null : el("span", { class: "sr" }, said));
}

/** A member's column: its name, and what is wrong with it. */
function memberColumn(member) {
  const state = member.state === "live" ? (member.muted ? "muted" : "") : String(member.state ?? "");
  const note = member.self ? "this node" : "";
  return el("th", { role: "columnheader", scope: "col", class: "at-node", title: `${member.id}${state ? `, ${state}` : ""}` },
    el("span", { class: "node-name" }, member.id),
    el("span", { class: state ? "node-note worried" : "node-note" }, state || note));
}
