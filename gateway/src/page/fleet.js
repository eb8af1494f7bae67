// The fleet: its figures in one line, its members in a list, and what is wrong as banners.

import { el, keyed, mark, refill, say, shape } from "./dom.js";
import { lacksMajority, listOf, troubles } from "./view.js";
import { age, figure, list, moment, span } from "./words.js";

/** Letters of a configuration's hash that are shown. */
const HASH = 8;
/** Members that are listed; the electorate is far below. */
const MEMBERS_MAX = 200;

const STATES = {
  live: ["in", "live"], suspect: ["doubt", "suspect"], draining: ["back", "draining"],
  lost: ["out", "lost"], left: ["none", "left"],
};
const WORST = ["lost", "suspect", "draining", "live", "left"];
const rank = (one) => (WORST.indexOf(one.state) + WORST.length) % WORST.length;

const short = (hash) => String(hash ?? "").slice(0, HASH) || "–";

/** How many members run each configuration. */
function configurations(members) {
  const hashes = new Map();
  for (const one of members) {
    if (one.config_hash && one.state !== "left" && one.state !== "lost") {
      hashes.set(one.config_hash, [...(hashes.get(one.config_hash) ?? []), String(one.id)]);
    }
  }
  return [...hashes].sort((one, other) => other[1].length - one[1].length);
}

/** The line of figures. `reload()` asks whether to read the configuration again. */
export function showFacts(cluster, members, config, reload) {
  const place = document.getElementById("facts");
  const live = members.filter((one) => one.state === "live" || one.state === "suspect").length;
  const counted = members.filter((one) => one.state !== "left").length;
  const suspects = members.filter((one) => one.state === "suspect").map((one) => String(one.id));
  const hashes = configurations(members);
  const isSkewed = hashes.length > 1 || cluster.config_skew === true;
  const lone = Number(cluster.electorate) <= 1;
  const isCut = lacksMajority(cluster);
  const versions = [...new Set(members.filter((one) => one.version).map((one) => String(one.version)))];
  const facts = [
    ["Members", lone ? "this node alone" : `${live} of ${counted} live`, live < counted ? "doubt" : null],
    ["Takes out", lone ? "own breakers only" : `${figure(cluster.quorum)} of ${figure(cluster.electorate)} votes`, null],
    ["Majority", lone ? "not needed" : isCut ? "missing" : cluster.can_decide ? "live" : "not asked", isCut ? "out" : null],
    ...decides(cluster.redis),
    ["Suspicion", suspects.length > 0 ? list(suspects, 3) : "none", suspects.length > 0 ? "doubt" : null],
    ["Configuration", isSkewed ? `differs, ${Math.max(2, hashes.length)} in use` : short(config?.hash ?? hashes[0]?.[0]), isSkewed ? "doubt" : null],
    ["Version", versions.length > 1 ? list(versions, 3) : (versions[0] ?? "–"), versions.length > 1 ? "doubt" : null],
  ];
  const deed = () => el("button", { type: "button", id: "reload", class: "small act", click: reload }, "Reload", el("span", { class: "sr" }, " configuration"));
  refill(place, JSON.stringify(facts), () => facts.map(([name, value, level]) => el("div", { class: "fact" },
    el("dt", {}, name), el("dd", { "data-level": level }, level ? shape(level, level) : null, value, name === "Configuration" ? deed() : null))));
}

/** Where the fleet decides, if it does so in Redis. */
function decides(redis) {
  if (!redis) return [];
  const said = { up: "in Redis", returning: "Redis is being read" }[redis.state] ?? "Redis is away";
  return [["Decides", said, redis.state === "up" ? null : redis.fallback === "fail_closed" ? "out" : "doubt"]];
}

/** The list of members. `manage(id)` opens what can be done to one. */
export function showMembers(members, elapsed, manage) {
  const sorted = members.slice(0, MEMBERS_MAX).sort((one, other) => rank(one) - rank(other));
  say(document.getElementById("members-count"), members.length > 1 ? String(members.length) : "");
  keyed(document.getElementById("member-list"), sorted, {
    key: (one) => String(one.id),
    make: (one) => {
      const button = el("button", { type: "button", class: "small act", click: () => manage(String(one.id)) }, "Manage", el("span", { class: "sr" }, ` ${one.id}`));
      return el("li", { class: "member" }, el("span", { class: "member-shape" }),
        el("span", { class: "member-name" }, el("b"), el("span", { class: "member-state" })),
        el("span", { class: "member-more faint" }), button);
    },
    update: (node, one) => fillMember(node, one, elapsed),
  });
}

function fillMember(node, one, elapsed) {
  const [level, said] = STATES[one.state] ?? ["none", String(one.state ?? "unknown")];
  const [drawn, name, more] = node.children;
  mark(node, "data-level", level);
  refill(drawn, level, () => [shape(level, level)]);
  say(name.firstChild, one.id);
  const notes = [said, one.self ? "this node" : null, one.muted ? "muted" : null].filter(Boolean);
  say(name.lastChild, notes.join(" · "));
  say(more, details(one, elapsed).map(([key, value]) => `${key} ${value}`).join(" · "));
}

/** What is known of a member, as pairs. */
export function details(one, elapsed = 0) {
  const found = [];
  if (typeof one.lost_for_ms === "number") found.push(["lost for", age(one.lost_for_ms + elapsed)]);
  else if (!one.self && typeof one.age_ms === "number") found.push(["heard", `${span(one.age_ms + elapsed)} ago`]);
  if (typeof one.uptime_ms === "number") found.push(["up", span(one.uptime_ms + elapsed)]);
  if (one.steward_of > 0) found.push(["steward of", figure(one.steward_of)]);
  if (one.config_hash) found.push(["config", short(one.config_hash)]);
  if (one.version) found.push(["version", String(one.version)]);
  return found;
}

/** The banners. `link` tells of the connection to this node. */
export function showBanners(state, elapsed, retry) {
  const found = [];
  const { link, cluster, config } = state;
  if (link.failed) {
    const ticking = Number.isFinite(elapsed) ? ` What is shown is ${age(elapsed)} old.` : "";
    const how = link.isRefusal ? "answers that it cannot" : "does not answer";
    const why = link.failed.replace(/\.$/, "");
    const node = state.node || "This node";
    // Without a good token it is no use to ask again.
    if (link.isShut) found.push({ key: "shut", level: "out", text: `${node} asks for a token.`, ticking });
    else found.push({ key: "link", level: "out", text: `${node} ${how}: ${why}. Trying again.`, ticking, retry });
  }
  for (const [level, text, ticking] of troubles(cluster, elapsed)) found.push({ key: text.slice(0, 24), level, text, ticking });
  const error = config?.last_error;
  if (error) {
    const since = typeof config.loaded_unix_ms === "number" ? ` The configuration of ${moment(config.loaded_unix_ms)} stays.` : "";
    found.push({ key: "config", level: "doubt", text: `The last reload was refused at ${moment(error.unix_ms)}: ${String(error.message).replace(/\.?$/, ".")}${since}` });
  }
  const restart = Array.isArray(config?.needs_restart) ? config.needs_restart.map(String) : [];
  if (restart.length > 0) found.push({ key: "restart", level: "info", text: `Takes effect at the next restart only: ${list(restart, 6)}.` });
  if (cluster && listOf(state.members).length > 0) {
    const hashes = configurations(listOf(state.members));
    if (hashes.length > 1) {
      const parts = hashes.slice(0, 4).map(([hash, ids]) => `${short(hash)} on ${list(ids, 4)}`);
      found.push({ key: "skew", level: "info", text: `The members run different configurations: ${parts.join("; ")}.` });
    }
  }
  keyed(document.getElementById("banners"), found, {
    key: (one) => one.key,
    make: (one) => el("div", { class: "banner", role: one.level === "info" ? "status" : "alert" },
      shape(one.level === "info" ? "none" : one.level, one.level),
      // What ticks is for the eye only, or it would be read aloud each second.
      el("p", {}, el("span"), el("span", { "aria-hidden": "true" })),
      one.retry ? el("button", { type: "button", class: "small", click: one.retry }, "Try now") : null),
    update: (node, one) => {
      mark(node, "data-level", one.level);
      say(node.children[1].firstChild, one.text);
      say(node.children[1].lastChild, one.ticking);
    },
  });
}
