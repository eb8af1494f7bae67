// What both clients share: the rows, the switches of the mocks, and what the mocks have seen.
//
// A row is a claim with a function that asserts it. All rows run; those that fail are told together, so
// that one broken promise does not hide the next.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';

// Where everything listens and which keys are good: an object as the first argument.
export const place = JSON.parse(process.argv[2]);
// With further arguments only the claims that contain one of them are checked.
const wanted = process.argv.slice(3);

export const { openai: OPENAI, anthropic: ANTHROPIC } = place;
export const AGENT = { 'x-agent-id': 'row' };
// A wait for what has to come, in milliseconds; nothing here takes as long.
export const PATIENCE = 30_000;
// As often a gateway tries for one request.
const ATTEMPTS_MAX = 3;
// Characters of a failure that are told.
const TOLD_MAX = 600;
export const MESSAGES = [{ role: 'user', content: 'hello' }];
export const WORDS = 'token0 token1 token2 token3 token4 ';

const [checked, broken] = [[], []];

// GET, or POST with a JSON body, at an address of the test.
export async function call(address, path, body) {
  const method = body === undefined ? 'GET' : 'POST';
  const answer = await fetch(`http://${address}${path}`, {
    method,
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE),
  });
  assert.equal(answer.status, 200, path);
  return answer.json();
}

// Makes a mock behave so from here on, and in nothing else than it does in health.
export async function fault(mock, behaviour = {}) {
  await call(mock, '/__admin/reset', {});
  await call(mock, '/__admin/set', behaviour);
}

// How many requests the mocks have seen in this row.
export async function asked(...mocks) {
  const counts = await Promise.all(mocks.map((mock) => call(mock, '/__admin/counts')));
  return counts.reduce((sum, each) => sum + each.requests, 0);
}

export async function forget(...mocks) {
  for (const mock of mocks) await call(mock, '/__admin/reset_counts', {});
}

// For how many requests of the client the mocks were asked: each has an id of its own, which all of the
// gateway's attempts carry.
export async function askings(...mocks) {
  const records = await Promise.all(mocks.map((mock) => call(mock, '/__admin/requests')));
  return new Set(records.flat().map((record) => record.request_id)).size;
}

// Asserts that the client took the failure for final, and that the gateway tried no more often than it
// may. A connection that breaks just as it is used again is replaced without being counted, which the
// mocks see once for each connection that was at rest.
export async function isAskedOnce(error) {
  assert.equal(error.headers.get('x-should-retry'), 'false');
  const mocks = [OPENAI, ANTHROPIC];
  assert.equal(await askings(...mocks), 1);
  const attempts = Number(error.headers.get('x-quorumgate-attempts'));
  const most = error.status === 502 ? attempts + mocks.length : attempts;
  const requests = await asked(...mocks);
  const told = `${attempts} attempts, ${requests} requests`;
  assert.ok(attempts <= ATTEMPTS_MAX && attempts <= requests && requests <= most, told);
}

// The last request that a mock has seen.
export async function seen(mock) {
  const record = (await call(mock, '/__admin/requests')).at(-1);
  return { ...record, headers: Object.fromEntries(record.headers) };
}

// Runs a claim: both mocks are healthy and their books empty at its start.
export async function row(claim, check) {
  if (wanted.length && !wanted.some((word) => claim.includes(word))) return;
  checked.push(claim);
  try {
    for (const mock of [OPENAI, ANTHROPIC]) await fault(mock);
    await forget(OPENAI, ANTHROPIC);
    await check();
  } catch (error) {
    // Where in these files it was, and not where in the client.
    const lines = [...(error.stack ?? '').matchAll(/(\w+_client\.mjs:\d+)/g)].map(([line]) => line);
    const told = `${error.name}: ${error.message}`.slice(0, TOLD_MAX);
    broken.push(`- ${claim}\n  ${lines.join(' ')} ${told}`);
  }
}

// Asserts that the deed rejects with exactly this kind of error, and returns it. `status` is the HTTP
// status and `code` the gateway's own word.
export async function raises(kind, deed, status, code) {
  let result;
  try {
    result = await deed();
  } catch (error) {
    const told = `${error.constructor.name} instead of ${kind.name}: ${error.message}`;
    assert.equal(error.constructor, kind, told);
    if (status !== undefined) assert.equal(error.status, status, error.message);
    if (code !== undefined) assert.equal(codeOf(error), code, error.message);
    return error;
  }
  assert.fail(`no ${kind.name} but ${JSON.stringify(result).slice(0, 200)}`);
}

// The gateway's code in an error: OpenAI's client unwraps the body, Anthropic's does not.
export function codeOf(error) {
  return (error.error?.error ?? error.error)?.code;
}

export function hasFourKeys(error) {
  const body = error.error?.error ?? error.error;
  for (const key of ['message', 'type', 'param', 'code']) assert.ok(key in body, key);
  assert.ok(error.headers.get('x-request-id'));
}

// All items of a stream.
export async function all(stream) {
  const items = [];
  for await (const item of await stream) items.push(item);
  return items;
}

// What the deed returns, and its seconds.
export async function timed(deed) {
  const began = performance.now();
  const result = await deed();
  return [result, (performance.now() - began) / 1000];
}

export const digest = (data) => createHash('sha256').update(data).digest('hex');

// A `fetch` that keeps the body of the last request, as it was sent.
export function keepingFetch() {
  const kept = {};
  const keep = async (url, init) => {
    const request = new Request(url, { ...init, duplex: 'half' });
    kept.body = Buffer.from(await request.clone().arrayBuffer());
    kept.headers = request.headers;
    const { method, headers, signal } = request;
    return fetch(url, { method, headers, signal, body: kept.body });
  };
  return [keep, kept];
}

// Tells how it went, in one line if all is well.
export function end(client) {
  if (broken.length) {
    console.log(broken.join('\n'));
    console.log(`${client}: ${broken.length} of ${checked.length} claims do not hold`);
    process.exit(1);
  }
  console.log(`${client}: all ${checked.length} claims hold`);
  // A connection that is kept for reuse would keep the process, too.
  process.exit(0);
}
