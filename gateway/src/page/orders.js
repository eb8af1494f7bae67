// What an operator may order here: an endpoint overruled, a member sent off, each with a reason; and
// the node's configuration read again.

import { act, endpointPath } from "./api.js";
import { el, say } from "./dom.js";
import { details } from "./fleet.js";
import { choices, chosen, openSheet, unsure } from "./sheet.js";
import { count, list, quoted, span } from "./words.js";

const dialog = document.getElementById("order");

/** The API's bounds: bytes of a reason, and the longest order. */
const REASON_BYTES_MAX = 256;
const FOR_MAX_MS = 168 * 3_600_000;
const UNITS = { s: 1_000, m: 60_000, h: 3_600_000 };

const STATES = [
  ["force_open", "Force out", "No request is sent to it, whatever the fleet thinks."],
  ["force_closed", "Force in", "Requests are sent to it, whatever the fleet thinks."],
  ["auto", "Automatic", "Ends an order: the fleet's rule decides again."],
];
const PERIODS = [["5m", "5 min"], ["15m", "15 min"], ["1h", "1 h"], ["custom", "Other"]];
const VERBS = { force_open: "open", force_closed: "close", auto: "auto" };

const DEEDS = {
  drain: ["Drain", "It tells balancers that it is not ready, closes to clients, and lets its streams finish. It keeps its vote and runs until it is stopped.", "drains"],
  leave: ["Leave", "The same, and it is out of the electorate at once: fewer votes are needed.", "leaves"],
  forget: ["Forget", "A lost member is no longer counted. Only if it is gone for good.", "is forgotten"],
  mute: ["Mute", "Its votes do not count on this node until it is unmuted.", "is muted here"],
  unmute: ["Unmute", "Its votes count on this node again.", "counts here again"],
};

/** Overrules an endpoint. `done(text)` is told when it is. */
export function override(row, done) {
  const order = { state: first(row), period: "15m", reason: "" };
  const custom = el("input", { id: "order-custom", type: "text", inputmode: "text", placeholder: "90m or 12h", autocomplete: "off", spellcheck: "false", hidden: true, "aria-label": "For how long, such as 90m or 12h, up to 168h" });
  const periods = choices("period", "For", PERIODS, order.period);
  periods.append(custom);
  const reason = reasonField();
  const hint = el("code", { class: "command" });
  const read = () => {
    order.state = chosen(dialog, "state") || order.state;
    const period = chosen(dialog, "period") || order.period;
    custom.hidden = period !== "custom";
    order.period = period === "custom" ? custom.value.trim() : period;
    order.reason = reason.input.value.trim();
    periods.hidden = order.state === "auto";
    say(hint, command(row.key, order));
  };
  openSheet(dialog, {
    title: `Override ${row.key}`,
    lede: el("p", { class: "faint" }, row.why ? `${row.badge}. ${row.why}.`.replace(/\.\.$/, ".") : `${row.badge}.`),
    fields: [
      choices("state", "What shall hold everywhere", STATES, order.state),
      periods, ...reason.nodes,
      el("p", { class: "faint hint" }, "The same in a terminal", hint),
    ],
    label: () => {
      read();
      return deedOf(order);
    },
    submit: async (isSure) => {
      read();
      check(order);
      const body = { state: order.state, reason: order.reason };
      if (order.state !== "auto") body.for = order.period;
      if (isSure) body.confirm = true;
      await act(`${endpointPath(row.key)}/override`, body);
      return `${row.key}: ${deedOf(order).toLowerCase()}.`;
    },
    done,
  });
  reason.input.focus();
}

/** What is most likely wanted: a sick endpoint back, a healthy one out, an order ended. */
function first(row) {
  if (row.what === "ordered" || row.what === "kept") return "auto";
  return row.isOut ? "force_closed" : "force_open";
}

function deedOf({ state, period }) {
  const label = STATES.find(([value]) => value === state)?.[1] ?? "";
  if (state === "auto") return "Back to automatic";
  const ms = millis(period);
  return ms === null ? label : `${label} for ${span(ms)}`;
}

function command(key, { state, period, reason }) {
  const time = state === "auto" ? "" : ` --for ${quoted(period || "15m")}`;
  return `quorumgate ${VERBS[state] ?? "auto"} ${quoted(key)}${time} --reason ${quoted(reason || "…")}`;
}

function millis(period) {
  const found = /^(\d{1,6})(s|m|h)$/.exec(period);
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

function check({ state, period, reason }) {
  checkReason(reason);
  if (state === "auto") return;
  const ms = millis(period);
  if (ms === null || ms === 0 || ms > FOR_MAX_MS) throw new Error("For how long? A number with s, m or h, such as 90m, up to 168h.");
}

function checkReason(reason) {
  if (reason === "") throw new Error("Give a reason: whoever looks next wants to know.");
  const bytes = new TextEncoder().encode(reason).length;
  if (bytes > REASON_BYTES_MAX) throw new Error(`The reason is ${bytes} bytes long; ${REASON_BYTES_MAX} fit.`);
}

function reasonField() {
  const input = el("input", { id: "order-reason", type: "text", required: true, maxlength: REASON_BYTES_MAX, autocomplete: "off" });
  const label = el("label", { for: "order-reason" }, "Reason", el("span", { class: "faint" }, " (the whole fleet shows it)"));
  return { input, nodes: [label, input] };
}

/** Shows a member, and what can be done to it. */
export function manage(member, done) {
  const id = String(member.id);
  const isLost = member.state === "lost";
  const able = [isLost ? "forget" : "drain", isLost ? null : "leave", member.self ? null : member.muted ? "unmute" : "mute"].filter(Boolean);
  const reason = reasonField();
  const deed = () => chosen(dialog, "deed") || able[0];
  const facts = [["state", String(member.state)], ["address", member.address], ["generation", member.generation], ...details(member)];
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== 0);
  openSheet(dialog, {
    title: id,
    lede: el("dl", { class: "pairs" }, ...known.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, String(value))))),
    fields: [choices("deed", `What shall become of ${id}`, able.map((name) => [name, ...DEEDS[name].slice(0, 2)]), able[0], true), ...reason.nodes],
    label: () => `${DEEDS[deed()][0]} ${id}`,
    submit: async (isSure) => {
      const text = reason.input.value.trim();
      checkReason(text);
      if (!isSure) throw unsure(`${DEEDS[deed()][0]} ${id}? ${DEEDS[deed()][1]}`);
      await act(`members/${encodeURIComponent(id)}/${deed()}`, { reason: text });
      return `${id} ${DEEDS[deed()][2]}.`;
    },
    done,
  });
}

/** Has this node read its configuration again, after a yes. */
export function reload(config, done) {
  const source = config?.source ? String(config.source) : "its configuration";
  openSheet(dialog, {
    title: "Reload the configuration",
    lede: el("p", { class: "faint" }, `This node reads ${source} again. If anything is wrong with it, what holds stays. No other node is asked.`),
    fields: [el("p", { class: "faint hint" }, "The same in a terminal", el("code", { class: "command" }, "quorumgate reload"))],
    label: () => "Reload the configuration",
    submit: async () => outcome(await act("config/reload", {})),
    done,
  });
  dialog.querySelector(".primary").focus();
}

/** What a reload came to, in a sentence or two. */
function outcome({ changed, needs_restart: waits, endpoints }) {
  const parts = ["added", "removed", "changed"].map((what) => [endpoints?.[what]?.length ?? 0, what]).filter(([many]) => many > 0);
  const which = parts.length > 0 ? `: ${parts.map(([many, what], index) => `${index === 0 ? count(many, "endpoint") : many} ${what}`).join(", ")}` : "";
  const restart = Array.isArray(waits) && waits.length > 0 ? ` At the next restart only: ${list(waits.map(String))}.` : "";
  return `${changed ? `The new configuration holds${which}` : "Nothing has changed"}.${restart}`;
}
