// Follows the node's events: one long answer, read as it comes, taken up again where it broke off.
//
// `EventSource` cannot carry a token, so the stream is read by hand. It is followed only while the
// page is seen; the node keeps the last events, and tells by a `gap` when some are lost.

import { ApiError, address, headers } from "./api.js";

/** The node sends a comment every 15 s; a stream that is silent for this long is dead. */
const SILENCE_MAX = 40_000;
const RETRY_MIN = 1_000;
const RETRY_MAX = 15_000;
/** Largest event that is read, in characters. */
const EVENT_MAX = 256 * 1024;

/** Calls `tell(event)` for each event, and `change(isFollowing)` when the stream comes or goes. */
export class Stream {
  #tell;
  #change;
  #last = "0";
  #failures = 0;
  #timer = null;
  #cut = null;

  constructor(tell, change) {
    this.#tell = tell;
    this.#change = change;
    document.addEventListener("visibilitychange", () => this.restart());
  }

  /** Ends the stream and begins it anew, if anybody looks. */
  restart() {
    clearTimeout(this.#timer);
    this.#cut?.abort();
    this.#cut = null;
    if (!document.hidden) void this.#follow(new AbortController());
  }

  async #follow(cut) {
    this.#cut = cut;
    let isShut = false;
    try {
      await this.#read(cut);
    } catch (problem) {
      this.#failures += 1;
      isShut = problem.status === 401;
    }
    if (this.#cut !== cut) return;
    this.#cut = null;
    this.#change(false);
    // Without a good token it is no use to ask again; whoever signs in restarts it.
    if (isShut) return;
    const pause = Math.min(RETRY_MAX, RETRY_MIN * 2 ** Math.max(0, this.#failures - 1));
    this.#timer = setTimeout(() => this.restart(), pause);
  }

  async #read(cut) {
    const url = address("events");
    url.searchParams.set("since", this.#last);
    const asked = headers({ accept: "text/event-stream", "last-event-id": this.#last });
    let silence = setTimeout(() => cut.abort(), SILENCE_MAX);
    try {
      const answer = await fetch(url, { headers: asked, cache: "no-store", redirect: "error", signal: cut.signal });
      if (!answer.ok) throw new ApiError(answer.status, "", `status ${answer.status}`);
      this.#failures = 0;
      this.#change(true);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parse = parser((event) => this.#take(event));
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => cut.abort(), SILENCE_MAX);
        parse(value);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  #take({ id, data }) {
    if (id) this.#last = id;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      return;
    }
    if (event && typeof event === "object") this.#tell(event);
  }
}

/** A function to feed text to; it calls `tell({ id, data })` for each whole event (WHATWG, 9.2.6). */
export function parser(tell) {
  let rest = "";
  let id = "";
  let data = [];
  const line = (text) => {
    if (text === "") {
      if (data.length > 0) tell({ id, data: data.join("\n") });
      data = [];
      return;
    }
    const colon = text.indexOf(":");
    const name = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    // The id goes into a header again; what could not stand in one is not kept.
    if (name === "id" && /^[\x21-\x7e]{1,128}$/.test(value)) id = value;
  };
  return (text) => {
    rest += text;
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    if (rest.length > EVENT_MAX) rest = "";
    lines.forEach(line);
  };
}
