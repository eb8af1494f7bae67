// The way to the admin API: the token, one request with a deadline, and what a refusal means.
//
// The token lives in this tab's session storage only; a read-only one is told by `whoami`. Addresses
// are relative to the page, so that the page works behind a path of somebody's proxy too.

const TOKEN = "quorumgate-token";
/** How long an answer may take, in ms. */
const PATIENCE = 10_000;
/** Longest text of an error that is shown. */
const MESSAGE_MAX = 400;

/** What went wrong: `status` 0 is a node that does not answer, `code` is the API's. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(String(message).slice(0, MESSAGE_MAX));
    this.status = status;
    this.code = code;
  }
}

/** The address of a path of the API. */
export function address(path) {
  return new URL(`admin/v1/${path}`, document.baseURI);
}

/** An endpoint's `pool/name` as a path. */
export function endpointPath(key) {
  return `endpoints/${String(key).split("/").map(encodeURIComponent).join("/")}`;
}

/** The headers of every request. */
export function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

/** Keeps a token for this tab; an empty one is forgotten. */
export function keep(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

/** Whether a token is kept. */
export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

/** Looks. */
export function look(path) {
  return ask(path, { method: "GET", headers: headers() });
}

/** Acts. */
export function act(path, body) {
  const json = { "content-type": "application/json" };
  return ask(path, { method: "POST", headers: headers(json), body: JSON.stringify(body) });
}

async function ask(path, request) {
  const options = { ...request, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(PATIENCE) };
  let answer;
  let text;
  try {
    answer = await fetch(address(path), options);
    text = await answer.text();
  } catch (problem) {
    const isLate = problem?.name === "TimeoutError";
    throw new ApiError(0, "unreachable", isLate ? `no answer within ${PATIENCE / 1000} s` : "no connection");
  }
  const value = parsed(text);
  if (answer.ok && value !== undefined) return value;
  if (answer.ok) throw new ApiError(0, "not_json", "the answer is not JSON; is a proxy in between?");
  const error = value?.error ?? {};
  throw new ApiError(answer.status, String(error.code ?? ""), error.message ?? `status ${answer.status}`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
