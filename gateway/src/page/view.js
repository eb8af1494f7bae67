// What the figures amount to: the headline, and for each endpoint what is so, who says it, why, and
// when it returns. Pure functions from the API's answers; nothing here touches the page.
//
// Ages and countdowns are as of when the answer came; `elapsed` ms have passed since.

import { age, count, countdown, figure, isFigure, latency, list, sentence, span } from "./words.js";

const BADGES = {
  fleet: ["out", "Out, whole fleet"],
  ordered: ["order", "Out by order"],
  here: ["out", "Out, this node"],
  paused: ["back", "Paused"],
  returning: ["back", "Returning"],
  shadow: ["doubt", "In, shadow says out"],
  kept: ["order", "In by order"],
  doubted: ["doubt", "In, but doubted"],
  healthy: ["in", "In"],
};
/** Up to so many endpoints are named in the headline. */
const NAMED_MAX = 3;
const RANK = ["fleet", "here", "ordered", "paused", "returning", "shadow", "doubted", "kept", "healthy"];

/** Why a vote does not count, in a word and in a sentence. */
const VOID = {
  abstains: ["abstains", "it suspects itself and abstains"],
  suspect: ["suspect", "this node suspects the voter"],
  muted: ["muted", "an operator muted the voter"],
  shadow: ["shadow", "its breaker only watches"],
  flapping: ["flapping", "it changed its mind too often"],
  no_witness: ["no witness", "fewer than two members saw anything themselves"],
  not_observer: ["no traffic", "it has no traffic to the endpoint"],
};

const text = (value) => (value === null || value === undefined ? "" : String(value));
const rows = (value) => (Array.isArray(value) ? value.filter((one) => one && typeof one === "object") : []);
const left = (ms, elapsed) => (isFigure(ms) ? Math.max(0, ms - elapsed) : null);

/** The rows of an answer, whatever came. */
export const listOf = rows;

/** What is so of an endpoint: one of `RANK`. */
function condition(endpoint) {
  const { forced, in_rotation: isIn } = endpoint;
  const local = endpoint.local ?? {};
  if (forced === "force_open") return "ordered";
  if (forced === "force_closed") return "kept";
  const isOpen = endpoint.cluster?.state === "open";
  if (isOpen && isIn === true && local.mode !== "enforce") return "shadow";
  if (isOpen) return "fleet";
  if (local.state === "open" && isIn !== true) return "here";
  if (endpoint.cooling_ms > 0) return "paused";
  if (local.state === "half-open" && local.mode !== "shadow") return "returning";
  if (isIn === false) return "here";
  return standing(endpoint).length > 0 || local.state === "open" ? "doubted" : "healthy";
}

/** The votes that count. */
function standing(endpoint) {
  return rows(endpoint.votes).filter((vote) => vote.weight === "counts");
}

/** One endpoint as a row. */
export function row(endpoint, elapsed = 0) {
  const what = condition(endpoint);
  const [level, badge] = BADGES[what];
  const key = text(endpoint.endpoint);
  const pool = text(endpoint.pool);
  return {
    key,
    pool,
    name: text(endpoint.name) || key,
    what,
    level,
    badge,
    rank: RANK.indexOf(what),
    isOut: endpoint.in_rotation === false,
    why: why(endpoint, what),
    who: who(endpoint, what),
    back: back(endpoint, what, elapsed),
    load: load(endpoint),
    latency: paces(endpoint),
    endpoint,
    elapsed,
  };
}

/** Worst first; what is alike stays in the order of the configuration. */
export function compare(one, other) {
  return one.rank - other.rank;
}

/** The API's sentence without what the badge says already, or a sentence of our own. */
function why(endpoint, what) {
  const verdict = text(endpoint.verdict);
  const isPlain = verdict === "in" || /nothing is held against it$/.test(verdict);
  if (verdict && !isPlain) return sentence(verdict.replace(/^(?:out|in)(?: [a-z ,]+)?: /, ""));
  const cluster = endpoint.cluster ?? {};
  const reason = text(endpoint.local?.reason);
  const because = reason ? `: ${reason}` : "";
  const says = {
    fleet: `${figure(cluster.votes_counted)} of ${figure(cluster.electorate)} vote against it, ${figure(cluster.quorum)} are needed`,
    ordered: "An operator forced it out",
    kept: "An operator forced it in, whatever the fleet thinks",
    here: `This node's breaker opened${because}`,
    paused: endpoint.misconfigured ? "It refused our credential; see its api_key" : "It asked for a pause",
    returning: `It has to prove itself after its breaker opened${because}`,
    shadow: "Its breaker only watches; obeyed, it would be out",
    doubted: `${figure(cluster.votes_counted)} of ${figure(cluster.quorum)} needed votes stand against it`,
    healthy: endpoint.misconfigured ? "It refused our credential when last asked; see its api_key" : "",
  };
  return says[what];
}

/** Who says so, and for which reason, unless the verdict does: `gw-1 and gw-2: slow`. */
function who(endpoint, what) {
  const verdict = text(endpoint.verdict);
  if (what === "ordered" || what === "kept") {
    const reason = text(endpoint.forced_reason);
    if (verdict.includes(reason) && reason) return "";
    return `${text(endpoint.forced_by) || "an operator"}: ${reason ? `“${reason}”` : "no reason given"}`;
  }
  const byReason = new Map();
  for (const vote of standing(endpoint)) {
    const reason = text(vote.reason) || "no reason given";
    byReason.set(reason, [...(byReason.get(reason) ?? []), text(vote.voter)]);
  }
  // A verdict that names the accusers says it all.
  if ([...byReason.values()].flat().every((voter) => verdict.includes(voter))) return "";
  return [...byReason].slice(0, 3).map(([reason, voters]) => `${list(voters)}: ${reason}`).join(" · ");
}

/** What happens next and when: a text, and the ms left if it is a matter of time. */
function back(endpoint, what, elapsed) {
  const { local = {} } = endpoint;
  const at = (label, ms) => ({ label, ms: left(ms, elapsed) });
  if (what === "ordered" || what === "kept") {
    return isFigure(endpoint.forced_for_ms) ? at("automatic in", endpoint.forced_for_ms) : at("until changed", null);
  }
  if (what === "fleet" || what === "shadow") {
    return told(endpoint, elapsed);
  }
  if (what === "paused") return at("pause ends in", endpoint.cooling_ms);
  if (what === "returning") {
    if (local.rung === "ramp") return at(`ramp: ${figure(endpoint.weight_percent)} % of its weight`, null);
    return at(local.rung === "probe" ? "a probe decides" : "a few small requests decide", null);
  }
  return what === "here" ? told(endpoint, elapsed) : null;
}

/** What the API says comes next: what leads the recovery depends on more than the page knows. */
function told(endpoint, elapsed) {
  const next = text(endpoint.next);
  if (next === "" || next === "nothing") return null;
  const ms = left(endpoint.next_in_ms, elapsed);
  // The time comes last; it ticks here.
  const end = next.lastIndexOf(" in ");
  return ms === null || end < 0 ? { label: next, ms: null } : { label: next.slice(0, end + 3), ms };
}

/** The countdown of `back` as one text. */
export function backText(back) {
  if (!back) return "";
  if (back.ms === null) return back.label;
  return back.ms <= 0 ? `${back.label.replace(/ in$/, "")}: any moment` : `${back.label} ${countdown(back.ms)}`;
}

function load(endpoint) {
  const parts = [];
  if (endpoint.in_flight > 0) parts.push(`${figure(endpoint.in_flight)} in flight`);
  if (endpoint.open_share > 0.0005) parts.push(`out ${figure(endpoint.open_share * 100)} % of the time`);
  return parts.join(" · ");
}

/** The latency that is drawn, and how it is said. */
function paces(endpoint) {
  const known = endpoint.latency ?? {};
  const [p50, p95] = [known.first_token_p50_ms ?? known.total_p50_ms, known.first_token_p95_ms ?? known.total_p95_ms];
  if (isFigure(p95)) return { drawn: p95, said: `${latency(p50)} · ${latency(p95)}` };
  const mean = endpoint.latency_ms;
  return mean > 0 ? { drawn: mean, said: latency(mean) } : { drawn: null, said: "" };
}

/** What one member says of one endpoint: `kind` is a shape, `word` for the eye, `said` in full. */
export function cell(endpoint, member, elapsed = 0) {
  const id = text(member.id);
  const vote = rows(endpoint.votes).find((one) => one.voter === id);
  if (member.state === "lost" || member.state === "left") {
    return { kind: "lost", word: text(member.state), said: `${id} is ${text(member.state)} and has no vote` };
  }
  const isCast = vote && (vote.weight === "counts" || Object.hasOwn(VOID, text(vote.weight)));
  if (isCast) return castCell(id, vote, elapsed);
  if (member.self && endpoint.forced === "auto" && endpoint.local?.held === true) {
    return { kind: "held", word: "held", said: `${id} saw nothing itself and keeps it out because the fleet does` };
  }
  const heard = rows(endpoint.windows).find((one) => one.member === id);
  const saw = heard ? `; it saw ${count(heard.requests, "request")} and ${figure(heard.faults)} faults` : "";
  const though = member.muted ? ", and is muted here" : member.state === "suspect" ? ", and is suspected itself" : "";
  return { kind: "none", word: "", said: `${id} has no vote against it${though}${saw}` };
}

function castCell(id, vote, elapsed) {
  const since = age(isFigure(vote.age_ms) ? vote.age_ms + elapsed : null);
  const basis = vote.basis === "seconded" ? "seconded" : "first hand";
  const said = `${id} votes it out, ${basis}, for ${since}: ${text(vote.reason) || "no reason given"}`;
  if (vote.weight === "counts") return { kind: "out", word: since, said };
  const [word, because] = VOID[vote.weight];
  return { kind: "void", word, said: `${said}; it does not count: ${because}` };
}

/** The headline: what is out, and for whom. `all` are rows; `members` is the API's list. */
export function headline(all, members) {
  const out = all.filter((one) => one.isOut);
  const lost = rows(members).filter((one) => one.state === "lost");
  if (all.length === 0) return { level: "wait", title: "No endpoint is configured.", sub: "" };
  const isWorried = lost.length > 0 || all.some((one) => !one.isOut && (one.level === "doubt" || one.level === "back"));
  const worst = out.some((one) => one.level === "out") ? "out" : out.length > 0 ? "order" : isWorried ? "doubt" : "in";
  const title = titleOf(all.length, out.length, count(all.length, "endpoint"));
  return { level: worst, title, sub: [causes(out), others(all), pools(all)].filter(Boolean).join(" ") };
}

const CAUSES = [["fleet", "by the whole fleet"], ["here", "by this node and not the fleet"], ["ordered", "by an operator"]];

/** Who has them out: `2 by the whole fleet, 1 by an operator`; by name where they are few. */
function causes(out) {
  const known = CAUSES.map(([what]) => what);
  const groups = [...CAUSES, ["", "paused or waiting for a probe"]].map(([what, said]) => {
    const of = out.filter((one) => (what ? one.what === what : !known.includes(one.what)));
    return [of.map((one) => one.key), said];
  }).filter(([keys]) => keys.length > 0);
  if (groups.length === 0) return "";
  const name = ([keys, said]) => (out.length <= NAMED_MAX ? `${list(keys)} ${said}` : `${keys.length.toLocaleString("en")} ${said}`);
  return `${sentence(groups.map(name).join(", "))}.`;
}

function titleOf(all, out, whole) {
  if (out === 0) return all === 1 ? "The only endpoint is in." : `All ${whole} are in.`;
  if (out === all) return all === 1 ? "The only endpoint is out." : `All ${whole} are out.`;
  return `${out.toLocaleString("en")} of ${whole} ${out === 1 ? "is" : "are"} out.`;
}

/** What is in but not well. */
function others(all) {
  const inside = all.filter((one) => !one.isOut);
  const parts = [];
  const say = (many, what) => many > 0 && parts.push(`${many} ${what}`);
  say(inside.filter((one) => one.what === "returning").length, "returning");
  say(inside.filter((one) => one.what === "doubted" || one.what === "shadow").length, "doubted");
  say(inside.filter((one) => one.what === "kept").length, "kept in by an operator");
  return parts.length > 0 ? `${sentence(parts.join(", "))}.` : "";
}

/** The models that nothing serves any more. */
function pools(all) {
  const serves = new Map();
  for (const one of all) serves.set(one.pool, (serves.get(one.pool) ?? false) || !one.isOut);
  const dark = [...serves].filter(([, isServed]) => !isServed).map(([pool]) => pool);
  if (dark.length === 0) return "";
  return `No endpoint is left in ${list(dark)}.`;
}

/** How a Redis that does not decide stands, and where the trouble lies. */
function ledgerText(redis) {
  const parts = [redis.server, redis.step, redis.trouble].filter((part) => part && part !== "away").map(text);
  const why = parts.length > 0 && redis.trouble ? ` (${parts.join(" ")})` : "";
  if (redis.entry) return `The entry of ${text(redis.entry)} in Redis cannot be used${why}.`;
  return redis.state === "returning" ? "Redis is back and is being read." : `Redis is away${why}.`;
}

/** Whether it is for want of a live majority that the fleet cannot decide: not where Redis is to decide and is away. */
export function lacksMajority(cluster) {
  const redis = cluster.redis;
  const isRedisAway = redis && redis.state !== "up" && redis.fallback !== "gossip";
  return Number(cluster.electorate) > 1 && cluster.can_decide === false && Number(cluster.live) < Number(cluster.quorum) && !isRedisAway;
}

/** What stands in the way of deciding, as banners: level, text, and what of it ticks. */
export function troubles(cluster, elapsed = 0) {
  const found = [];
  if (!cluster) return found;
  if (cluster.suspect === true) {
    found.push(["doubt", "This node suspects itself: most of its endpoints fail here while other members see no fault. It abstains; look at this node's own network first."]);
  }
  const redis = cluster.redis;
  if (redis && redis.state !== "up") {
    const MEANWHILE = { gossip: "The gossip majority decides meanwhile.", local: "Each node goes by its own breaker meanwhile.", fail_closed: "Requests for a model are refused (503) meanwhile." };
    const how = ledgerText(redis);
    const meanwhile = Object.hasOwn(MEANWHILE, redis.fallback) ? ` ${MEANWHILE[redis.fallback]}` : "";
    const since = isFigure(redis.since_ms) ? ` For ${age(redis.since_ms + elapsed)} so far.` : "";
    found.push([redis.fallback === "fail_closed" ? "out" : "doubt", how + meanwhile, since]);
  }
  if (lacksMajority(cluster)) {
    found.push(["doubt", `No majority is live here (${figure(cluster.live)} of ${figure(cluster.electorate)}): nothing is taken out or brought back by the fleet until it returns. Each node goes by its own breakers.`]);
  }
  if (cluster.name_used_at) {
    found.push(["out", `Another process uses this node's name at ${text(cluster.name_used_at)}; stop one of the two.`]);
  }
  const watching = left(cluster.observing_ms, elapsed);
  if (watching > 0) found.push(["info", "This node has just started and only watches.", ` It takes part in ${span(watching)}.`]);
  return found;
}

/** What a vote's weight means, in words. */
export function weightText(vote) {
  if (vote.weight === "counts") return "counts";
  const because = Object.hasOwn(VOID, vote.weight) ? VOID[vote.weight][1] : text(vote.weight).replaceAll("_", " ");
  return `does not count (${because})`;
}

/** Whether the row holds all the words of a filter. */
export function isMatch(one, words) {
  const hay = `${one.key} ${one.badge} ${one.why} ${one.who}`.toLowerCase();
  return words.every((word) => hay.includes(word));
}

const NAMES = new Intl.Collator("en", { numeric: true });

/** Members in the order of the columns: this node, then by name, gw-2 before gw-10. */
export function ordered(members) {
  return rows(members).slice().sort((one, other) => {
    if (Boolean(one.self) !== Boolean(other.self)) return one.self ? -1 : 1;
    return NAMES.compare(text(one.id), text(other.id));
  });
}


