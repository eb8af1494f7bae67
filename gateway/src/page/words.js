// How figures are said: durations, ages, moments, counts. Everything that comes in may be missing.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Whether it is a figure that can be said. */
export function isFigure(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** A duration in words for the eye: `850 ms`, `12 s`, `3 min`, `2 h 5 min`, `3 d 4 h`. */
export function span(ms) {
  if (!isFigure(ms)) return "–";
  const value = Math.max(0, ms);
  if (value < SECOND) return `${Math.round(value)} ms`;
  if (value < MINUTE) return `${Math.floor(value / SECOND)} s`;
  if (value < HOUR) return two(value, MINUTE, "min", SECOND, "s", 10 * MINUTE);
  if (value < DAY) return two(value, HOUR, "h", MINUTE, "min", DAY);
  return two(value, DAY, "d", HOUR, "h", Infinity);
}

/** The larger unit, and the smaller one too while the whole is below `fine`. */
function two(value, large, largeName, small, smallName, fine) {
  const many = Math.floor(value / large);
  const rest = Math.floor((value % large) / small);
  return value < fine && rest > 0 ? `${many} ${largeName} ${rest} ${smallName}` : `${many} ${largeName}`;
}

/** An age: whole seconds, because tenths of one only flicker. */
export function age(ms) {
  return isFigure(ms) ? span(Math.max(SECOND, ms)) : "–";
}

/** What a clock that runs backwards shows: `0:42`, `12:05`, `1:02:05`. */
export function countdown(ms) {
  if (!isFigure(ms)) return "–";
  const seconds = Math.max(0, Math.ceil(ms / SECOND));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h >= 48) return span(ms);
  const tail = `${String(s).padStart(2, "0")}`;
  return h > 0 ? `${h}:${String(m).padStart(2, "0")}:${tail}` : `${m}:${tail}`;
}

/** A latency: `240 ms`, `1.2 s`, `12 s`. */
export function latency(ms) {
  if (!isFigure(ms)) return "–";
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  return ms < 10 * SECOND ? `${(ms / SECOND).toFixed(1)} s` : span(ms);
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const DATE = new Intl.DateTimeFormat(undefined, { day: "2-digit", month: "short" });

/** A moment on this reader's clock; with the day, if that was not today. */
export function moment(unix) {
  if (!isFigure(unix) || Math.abs(unix) > 8.64e15) return "–";
  const [then, today] = [new Date(unix), new Date()];
  const isToday = then.toDateString() === today.toDateString();
  return isToday ? CLOCK.format(then) : `${DATE.format(then)} ${CLOCK.format(then)}`;
}

/** `1 endpoint`, `2 endpoints`. */
export function count(many, one, more = `${one}s`) {
  return `${Number(many).toLocaleString("en")} ${many === 1 ? one : more}`;
}

/** `a`, `a and b`, `a, b and c`, `a, b and 5 more`. */
export function list(names, most = 4) {
  const shown = names.length > most ? names.slice(0, most - 1) : names.slice();
  if (shown.length < names.length) shown.push(`${names.length - shown.length} more`);
  if (shown.length < 2) return shown.join("");
  return `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** The first letter large, unless the first word is a name. */
export function sentence(text) {
  const value = String(text ?? "");
  return /^[a-z]+[\w]*[-./\d]/.test(value) ? value : value.slice(0, 1).toUpperCase() + value.slice(1);
}

/** A fault count or other figure with at most one decimal. */
export function figure(value) {
  return isFigure(value) ? String(Math.round(value * 10) / 10) : "–";
}

/** A word as a POSIX shell reads it back. */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
