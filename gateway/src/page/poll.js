// Asks again and again, but never twice at once, seldom unseen, and never more than the node can bear.
//
// A round is over when its work is; the next one begins a second later, or later still if the round
// was long (ten thousand endpoints are megabytes) or has failed. While nobody looks at the page, its
// tab's title still tells how things are, so that it is asked for at a distance.

/** The pause between two rounds, in ms. */
const EVERY = 1_000;
/** A round may take a fifth of the time at most. */
const REST = 4;
/** What happens may hurry a round, but never closer than this to the last one, nor than it took. */
const HURRIED = 100;
/** The longest pause of a round that works, and of one that fails. */
const PAUSE_MAX = 15_000;
const BACKOFF_MAX = 10_000;
/** The shortest pause while the page is not seen. A browser may stretch it to a minute. */
const UNSEEN = 20_000;

/**
 * Runs `round` for as long as the page is there; it throws to say that it has failed. It may return the
 * ms that it took in its usual course, so that a rare long one does not slow down the next.
 */
export class Poll {
  #round;
  #timer = null;
  #isBusy = false;
  #wantsMore = false;
  #failures = 0;
  #earliest = 0;

  constructor(round) {
    this.#round = round;
    document.addEventListener("visibilitychange", () => document.hidden || this.now());
  }

  /** Begins a round at once; while one is under way, right after it. */
  now() {
    clearTimeout(this.#timer);
    if (this.#isBusy) {
      this.#wantsMore = true;
      return;
    }
    void this.#run();
  }

  /** Begins a round as soon as the node can bear it: something has happened. */
  soon() {
    const pause = this.#earliest - performance.now();
    if (this.#isBusy || pause <= 0) {
      this.now();
    } else if (this.#failures === 0) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.now(), pause);
    }
  }

  async #run() {
    this.#isBusy = true;
    this.#wantsMore = false;
    const began = performance.now();
    let usual;
    try {
      usual = await this.#round();
      this.#failures = 0;
    } catch {
      this.#failures += 1;
    }
    this.#isBusy = false;
    this.#wait(usual ?? performance.now() - began);
  }

  #wait(took) {
    const calm = Math.min(PAUSE_MAX, Math.max(EVERY - took, took * REST, 0));
    const patient = Math.min(BACKOFF_MAX, EVERY * 2 ** (this.#failures - 1));
    const hurried = Math.min(calm, Math.max(HURRIED, took));
    const seen = this.#failures > 0 ? patient : this.#wantsMore ? hurried : calm;
    const pause = document.hidden ? Math.max(UNSEEN, seen) : seen;
    this.#earliest = performance.now() + hurried;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.now(), pause);
  }
}
