// A sparkline: how a latency went since the page was opened, one point a round.
//
// Only what is shown is remembered, so that ten thousand endpoints cost nothing.

import { draw } from "./dom.js";
import { isFigure } from "./words.js";

/** Points of one line. */
const POINTS = 60;
/** Lines remembered. */
const LINES_MAX = 500;
const [WIDTH, HEIGHT] = [92, 22];

const lines = new Map();

/** Adds a point to an endpoint's line. The line that was longest unseen makes room. */
export function note(key, value) {
  if (!isFigure(value)) return;
  const points = lines.get(key) ?? [];
  points.push(value);
  if (points.length > POINTS) points.shift();
  lines.delete(key);
  lines.set(key, points);
  if (lines.size > LINES_MAX) lines.delete(lines.keys().next().value);
}

/** An empty drawing for a line. */
export function blank() {
  const view = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" };
  return draw("svg", view, draw("path", { class: "spark-area" }), draw("path", { class: "spark-line" }));
}

/** Draws an endpoint's line, from zero to its own highest point, newest at the right. */
export function trace(svg, key) {
  const points = lines.get(key) ?? [];
  const [area, line] = svg.children;
  if (points.length < 2) {
    line.setAttribute("d", "");
    area.setAttribute("d", "");
    return;
  }
  const top = Math.max(...points) * 1.1 || 1;
  const first = POINTS - points.length;
  const x = (index) => (((first + index) / (POINTS - 1)) * (WIDTH - 2) + 1).toFixed(1);
  const y = (value) => (HEIGHT - 1 - (value / top) * (HEIGHT - 3)).toFixed(1);
  const path = points.map((value, index) => `${index === 0 ? "M" : "L"}${x(index)} ${y(value)}`).join("");
  line.setAttribute("d", path);
  area.setAttribute("d", `${path}L${x(points.length - 1)} ${HEIGHT}L${x(0)} ${HEIGHT}Z`);
}
