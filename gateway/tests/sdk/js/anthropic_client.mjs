// The official Anthropic client for JavaScript against a gateway.

import assert from 'node:assert/strict';

import Anthropic from '@anthropic-ai/sdk';
import { VERSION } from '@anthropic-ai/sdk/version';

import {
  AGENT, ANTHROPIC, MESSAGES, OPENAI, PATIENCE, WORDS, all, asked, askings, codeOf, digest, end, fault,
  forget, hasFourKeys, isAskedOnce, keepingFetch, place, raises, row, seen, timed,
} from './common.mjs';

const { APIError, BadRequestError, InternalServerError, RateLimitError } = Anthropic;
const IMAGE = Buffer.from(Array.from({ length: 2048 }, (_, number) => number % 256));
const TOOLS = [{ name: 'look_up', input_schema: { type: 'object' } }];

const clientOf = (options = {}) =>
  new Anthropic({
    baseURL: `http://${place.gateway}`,
    apiKey: place.key,
    defaultHeaders: AGENT,
    maxRetries: 0,
    timeout: PATIENCE,
    ...options,
  });
const client = clientOf();
const patient = clientOf({ maxRetries: undefined });

const body = (options = {}) =>
  ({ model: 'claude', max_tokens: 64, messages: MESSAGES, ...options });
const message = (options = {}, by = client, request = {}) =>
  by.messages.create(body(options), request);
const stream = (options = {}) => all(message({ stream: true, ...options }));

// What is served.

await row('a plain message has text and usage', async () => {
  const answer = await message();
  assert.deepEqual([answer.content[0].text, answer.stop_reason], [WORDS, 'end_turn']);
  assert.equal(answer.usage.output_tokens, 5);
});

await row('a streamed message has every word and its usage', async () => {
  const events = await stream();
  const deltas = events.filter((event) => event.type === 'content_block_delta');
  assert.equal(deltas.map((event) => event.delta.text).join(''), WORDS);
  assert.equal(events.at(-1).type, 'message_stop');
  assert.ok(events[0].message.usage.input_tokens > 0);
  assert.equal(events.at(-2).usage.output_tokens, 5);
});

await row('the streaming helper gathers the same message', async () => {
  const final = await client.messages.stream(body()).finalMessage();
  assert.deepEqual([final.content[0].text, final.usage.output_tokens], [WORDS, 5]);
});

await row('a tool is called plain and in a stream', async () => {
  const [block] = (await message({ tools: TOOLS })).content;
  assert.deepEqual([block.name, block.input], ['look_up', { words: WORDS }]);
  const final = await client.messages.stream(body({ tools: TOOLS })).finalMessage();
  assert.deepEqual([final.content[0].input, final.stop_reason], [{ words: WORDS }, 'tool_use']);
});

await row('an image in a message arrives as it was sent', async () => {
  const source = { type: 'base64', media_type: 'image/png', data: IMAGE.toString('base64') };
  const content = [{ type: 'image', source }, { type: 'text', text: 'what? 你好' }];
  await message({ messages: [{ role: 'user', content }] });
  assert.deepEqual(JSON.parse((await seen(ANTHROPIC)).body).messages[0].content, content);
});

await row("only the model's name differs upstream and the caller's key stays behind", async () => {
  const [fetch, kept] = keepingFetch();
  const asking = message({ model: 'alias-of-claude' }, clientOf({ fetch }));
  const { response } = await asking.withResponse();
  const expected = kept.body.toString().replace('"alias-of-claude"', '"claude"');
  const { body_sha256, headers } = await seen(ANTHROPIC);
  assert.equal(body_sha256, digest(expected));
  assert.match(headers['x-api-key'], /eway$/);
  assert.equal(headers.authorization, undefined);
  assert.equal(headers['anthropic-version'], kept.headers.get('anthropic-version'));
  assert.equal(headers['x-request-id'], response.headers.get('x-request-id'));
});

await row('tokens are counted', async () => {
  const counted = await client.messages.countTokens({ model: 'claude', messages: MESSAGES });
  assert.ok(counted.input_tokens > 0);
  assert.equal((await seen(ANTHROPIC)).path, '/v1/messages/count_tokens');
});

await row('the models are listed', async () => {
  const names = (await all(client.models.list())).map((model) => model.id);
  for (const name of ['claude', 'alias-of-claude']) assert.ok(names.includes(name), names.join());
});

await row('a bearer token is as good as a key', async () => {
  const bearer = clientOf({ apiKey: null, authToken: place.key });
  assert.ok((await message({}, bearer)).content);
});

// What is refused, and how it is raised.

await row('path_not_allowed is NotFoundError', async () => {
  const deed = () => message({}, clientOf({ baseURL: `http://${place.gateway}/v2` }));
  hasFourKeys(await raises(Anthropic.NotFoundError, deed, 404, 'path_not_allowed'));
});

await row('missing_required_header is PermissionDeniedError', async () => {
  const deed = () => message({}, clientOf({ defaultHeaders: {} }));
  const error = await raises(
    Anthropic.PermissionDeniedError, deed, 403, 'missing_required_header',
  );
  assert.deepEqual([error.error.type, error.type], ['error', 'permission_error']);
});

await row('invalid_api_key is AuthenticationError', async () => {
  const deed = () => message({}, clientOf({ apiKey: 'sk-of-a-stranger' }));
  await raises(Anthropic.AuthenticationError, deed, 401, 'invalid_api_key');
  assert.equal(await asked(ANTHROPIC), 0);
});

await row('model_not_found is NotFoundError', () =>
  raises(Anthropic.NotFoundError, () => message({ model: 'x' }), 404, 'model_not_found'));

await row('model_not_allowed is PermissionDeniedError', async () => {
  const deed = () => message({}, clientOf({ apiKey: place.key_of_m }));
  await raises(Anthropic.PermissionDeniedError, deed, 403, 'model_not_allowed');
});

await row('what cannot be understood or is too much is BadRequestError', async () => {
  const long = [{ role: 'user', content: 'word '.repeat(20_000) }];
  for (const [options, code] of [
    [{ stream: 'yes' }, 'invalid_request'],
    [{ messages: long }, 'input_too_large'],
    [{ messages: Array(5).fill(MESSAGES[0]) }, 'too_many_messages'],
  ]) {
    await raises(BadRequestError, () => message(options), 400, code);
  }
});

await row('body_too_large is ContentTooLargeError', async () => {
  const messages = [{ role: 'user', content: 'word '.repeat(80_000) }];
  const deed = () => message({ messages });
  await raises(Anthropic.ContentTooLargeError, deed, 413, 'body_too_large');
});

await row('unsupported_media_type is an error of its status', async () => {
  const headers = { 'content-type': 'text/plain' };
  const deed = () => message({}, client, { headers });
  await raises(APIError, deed, 415, 'unsupported_media_type');
});

await row('rate_limit_exceeded is RateLimitError and says when to come back', async () => {
  const deed = async () => [await message({ model: 'limited' }), await message({ model: 'limited' })];
  const { headers, type } = await raises(RateLimitError, deed, 429, 'rate_limit_exceeded');
  const [seconds, ms] = ['retry-after', 'retry-after-ms'].map((name) => Number(headers.get(name)));
  assert.ok(seconds > 0 && seconds <= 60 && ms > 0 && ms <= 60_000, `${seconds} ${ms}`);
  assert.equal(type, 'rate_limit_error');
});

await row('overloaded and circuit_open are ServiceUnavailableError', async () => {
  await fault(OPENAI, { stall_after_tokens: 1 });
  const held = await message({ model: 'narrow', stream: true });
  for await (const event of held) {
    if (event.type !== 'content_block_delta') continue;
    const deed = () => message({ model: 'narrow' });
    await raises(Anthropic.ServiceUnavailableError, deed, 503, 'overloaded');
    break;
  }
  const deed = () => message({ model: 'open' });
  const open = await raises(Anthropic.ServiceUnavailableError, deed, 503, 'circuit_open');
  assert.ok(Number(open.headers.get('retry-after')) > 0);
});

await row('the failures of an upstream are raised by their status', async () => {
  const nobody = () => message({ model: 'nobody' });
  hasFourKeys(await raises(InternalServerError, nobody, 502, 'upstream_unavailable'));
  await raises(InternalServerError, () => message({ model: 'locked' }), 502, 'upstream_auth');
  await fault(OPENAI, { hang: 'accept' });
  const hasty = () => message({ model: 'hasty' });
  await raises(Anthropic.GatewayTimeoutError, hasty, 504, 'upstream_timeout');
  await fault(ANTHROPIC, { status: 302 });
  await raises(InternalServerError, message, 502, 'upstream_redirect');
  for (const [status, kind] of [
    [500, InternalServerError],
    [502, InternalServerError],
    [503, Anthropic.ServiceUnavailableError],
    [529, Anthropic.OverloadedError],
  ]) {
    await fault(ANTHROPIC, { status });
    await raises(kind, message, status, 'upstream_error');
  }
});

await row('an error within a success, or no answer at all, is InternalServerError', async () => {
  await fault(ANTHROPIC, { error_in_stream: true });
  const error = await raises(InternalServerError, stream, 502, 'upstream_error');
  assert.equal(error.error.type, 'error');
  for (const body of ['', '<html>', '{}']) {
    await fault(ANTHROPIC, { body });
    await raises(InternalServerError, message, 502, 'upstream_error');
  }
});

await row("an upstream's refusal of the request is raised as it came", async () => {
  await fault(ANTHROPIC, { status: 400 });
  const error = await raises(BadRequestError, message, 400);
  assert.equal(error.type, 'invalid_request_error');
  assert.match(error.apiMessage, /told to fail/);
});

// A stream that breaks off raises and never ends quietly.

async function breaksOff(behaviour) {
  await fault(ANTHROPIC, { tokens: 8, ...behaviour });
  const error = await raises(APIError, stream);
  assert.equal(codeOf(error), 'stream_interrupted', error.message);
  assert.equal(error.type, 'api_error');
}

await row('a cut stream raises', async () => {
  await breaksOff({ cut_after_tokens: 3 });
  await breaksOff({ cut_after_tokens: 3, closing: 'close' });
});

await row('a stream that ends without its end raises', () =>
  breaksOff({ finish_quietly_after_tokens: 3 }));

await row('a stream that falls silent raises', () => breaksOff({ stall_after_tokens: 3 }));

await row('a stream that begins late arrives whole', async () => {
  // Meanwhile the client gets a head and comments.
  await fault(ANTHROPIC, { first_token_ms: 2500 });
  const events = await stream();
  assert.equal(events.map((event) => event.delta?.text ?? '').join(''), WORDS);
});

await row('a failure after the head raises', async () => {
  await fault(OPENAI, { hang: 'accept' });
  const deed = () => all(message({ model: 'dull', stream: true }, patient));
  assert.equal(codeOf(await raises(APIError, deed)), 'upstream_timeout');
  assert.equal(await askings(OPENAI), 1);
});

await row('what came before the break was delivered', async () => {
  await fault(ANTHROPIC, { tokens: 8, cut_after_tokens: 3 });
  let words = '';
  await raises(APIError, async () => {
    for await (const event of await message({ stream: true })) words += event.delta?.text ?? '';
  });
  assert.equal(words, 'token0 token1 token2 ');
});

await row('the helper raises at a break too', async () => {
  for (const behaviour of [{ cut_after_tokens: 3 }, { finish_quietly_after_tokens: 3 }]) {
    await fault(ANTHROPIC, behaviour);
    const helper = client.messages.stream(body());
    const error = await raises(APIError, () => helper.finalMessage());
    assert.equal(codeOf(error), 'stream_interrupted', error.message);
  }
});

// The client's own retries do not multiply the gateway's.

await row('a final failure is not retried', async () => {
  for (const [behaviour, kind] of [
    [{ status: 500 }, InternalServerError],
    [{ status: 503 }, Anthropic.ServiceUnavailableError],
    [{ reset: true }, InternalServerError],
  ]) {
    for (const mock of [OPENAI, ANTHROPIC]) await fault(mock, behaviour);
    await forget(OPENAI, ANTHROPIC);
    await isAskedOnce(await raises(kind, () => message({ model: 'pair' }, patient)));
  }
});

await row('a broken stream is not asked for again', async () => {
  await fault(ANTHROPIC, { cut_after_tokens: 3 });
  await raises(APIError, () => all(message({ stream: true }, patient)));
  assert.equal(await asked(ANTHROPIC), 1);
});

await row('a full endpoint is asked again once when it said', async () => {
  await fault(OPENAI, { status: 429, retry_after: '1', fail_next: 1 });
  const [answer, seconds] = await timed(() => message({ model: 'paced' }, patient));
  assert.equal(answer.content[0].text, WORDS);
  assert.ok(seconds >= 1 && seconds < 10, `${seconds} s`);
  assert.equal(await asked(OPENAI), 2);
});

await row('a pause of more than a minute is not waited for', async () => {
  // Left to itself this client would sleep for as long as it is told, up to weeks.
  await fault(OPENAI, { status: 429, retry_after: '90' });
  const deed = () => raises(RateLimitError, () => message({ model: 'resting' }, patient), 429);
  const [error, seconds] = await timed(deed);
  assert.equal(error.headers.get('x-should-retry'), 'false');
  assert.ok(Number(error.headers.get('retry-after')) > 60 && seconds < 10, `${seconds} s`);
  assert.equal(await asked(OPENAI), 1);
});

end(`anthropic ${VERSION} for JavaScript`);
