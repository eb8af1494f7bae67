// The official OpenAI client for JavaScript against a gateway.

import assert from 'node:assert/strict';

import OpenAI, { toFile } from 'openai';
import { VERSION } from 'openai/version';

import {
  AGENT, ANTHROPIC, MESSAGES, OPENAI, PATIENCE, WORDS, all, asked, askings, codeOf, digest, end, fault,
  forget, hasFourKeys, isAskedOnce, keepingFetch, place, raises, row, seen, timed,
} from './common.mjs';

const { APIError, InternalServerError, RateLimitError } = OpenAI;
const BYTES = Buffer.from(Array.from({ length: 1024 }, (_, number) => number % 256));
const IMAGE = `data:image/png;base64,${BYTES.toString('base64')}`;
// As a file of sound: its bytes hold line ends and what looks like a boundary.
const FILE = Buffer.concat([BYTES, Buffer.from('\r\n--boundary--\r\n')]);
const TOOLS = [{ type: 'function', function: { name: 'look_up', parameters: { type: 'object' } } }];

const clientOf = (options = {}) =>
  new OpenAI({
    baseURL: `http://${place.gateway}/v1`,
    apiKey: place.key,
    defaultHeaders: AGENT,
    maxRetries: 0,
    timeout: PATIENCE,
    ...options,
  });
const client = clientOf();
const patient = clientOf({ maxRetries: undefined });

const chat = (options = {}, by = client, request = {}) =>
  by.chat.completions.create({ model: 'm', messages: MESSAGES, ...options }, request);
const chatStream = (options = {}) => all(chat({ stream: true, ...options }));
const textStream = () =>
  all(client.completions.create({ model: 'm', prompt: 'hello', stream: true }));
const responseStream = () =>
  all(client.responses.create({ model: 'm', input: 'hello', stream: true }));

// What is served.

await row('a plain chat has text and usage', async () => {
  const answer = await chat();
  assert.equal(answer.choices[0].message.content, WORDS);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.completion_tokens, 5);
});

await row('a streamed chat has every word and its usage', async () => {
  const chunks = await chatStream({ stream_options: { include_usage: true } });
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), WORDS);
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
  assert.equal(chunks.at(-1).usage.completion_tokens, 5);
});

await row('a tool is called plain and in a stream', async () => {
  const made = (await chat({ tools: TOOLS })).choices[0].message.tool_calls[0].function;
  assert.deepEqual([made.name, JSON.parse(made.arguments)], ['look_up', { words: WORDS }]);
  const chunks = await chatStream({ tools: TOOLS });
  const calls = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
  assert.equal(calls[0].function.name, 'look_up');
  const text = calls.map((made) => made.function.arguments).join('');
  assert.deepEqual(JSON.parse(text), { words: WORDS });
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'tool_calls');
});

await row('the streaming helper gathers the same answer', async () => {
  const stream = client.chat.completions.stream({ model: 'm', messages: MESSAGES });
  assert.equal(await stream.finalContent(), WORDS);
});

await row('an image in a message arrives as it was sent', async () => {
  const content = [
    { type: 'text', text: 'what is it? 你好' },
    { type: 'image_url', image_url: { url: IMAGE } },
  ];
  await chat({ messages: [{ role: 'user', content }] });
  assert.deepEqual(JSON.parse((await seen(OPENAI)).body).messages[0].content, content);
});

await row("only the model's name differs upstream and the caller's key stays behind", async () => {
  const [fetch, kept] = keepingFetch();
  const asking = chat({ model: 'alias-of-m' }, clientOf({ fetch }));
  const { response } = await asking.withResponse();
  const expected = kept.body.toString().replace('"alias-of-m"', '"m"');
  const { body_sha256, headers } = await seen(OPENAI);
  assert.equal(body_sha256, digest(expected));
  assert.match(headers.authorization, /eway$/);
  assert.equal(headers['x-request-id'], response.headers.get('x-request-id'));
});

await row('a text is completed plain and in a stream', async () => {
  const whole = await client.completions.create({ model: 'm', prompt: 'hello' });
  assert.equal(whole.choices[0].text, WORDS);
  assert.equal((await textStream()).map((chunk) => chunk.choices[0].text).join(''), WORDS);
});

await row("texts are embedded as numbers and as the client's own base64", async () => {
  for (const options of [{}, { encoding_format: 'float' }]) {
    const answer = await client.embeddings.create({ model: 'm', input: ['a', 'b'], ...options });
    const vectors = answer.data.map((one) => Array.from(one.embedding));
    assert.deepEqual(vectors, [[0.25, -0.5, 1], [0.25, -0.5, 1]]);
  }
});

await row('a response comes plain and in a stream', async () => {
  const answer = await client.responses.create({ model: 'm', input: 'hello' });
  assert.deepEqual([answer.output_text, answer.usage.output_tokens], [WORDS, 5]);
  const events = await responseStream();
  const deltas = events.filter((event) => event.type.endsWith('text.delta'));
  assert.equal(deltas.map((event) => event.delta).join(''), WORDS);
  assert.equal(events.at(-1).type, 'response.completed');
  assert.equal(events.at(-1).response.usage.output_tokens, 5);
});

await row('a response calls a function', async () => {
  const tools = [{ type: 'function', name: 'look_up', parameters: {}, strict: false }];
  const options = { model: 'm', input: 'hello', tools };
  const [item] = (await client.responses.create(options)).output;
  assert.deepEqual([item.name, JSON.parse(item.arguments)], ['look_up', { words: WORDS }]);
  const final = await client.responses.stream(options).finalResponse();
  assert.deepEqual(JSON.parse(final.output[0].arguments), { words: WORDS });
});

await row('images are made and edited', async () => {
  const made = await client.images.generate({ model: 'm', prompt: 'a cat', n: 2 });
  assert.equal(made.data.length, 2);
  for (const { b64_json } of made.data) assert.equal(Buffer.from(b64_json, 'base64')[1], 0x50);
  const image = await toFile(FILE, 'cat.png', { type: 'image/png' });
  const edited = await client.images.edit({ model: 'm', prompt: 'a dog', image });
  assert.ok(edited.data[0].b64_json);
  assert.equal((await seen(OPENAI)).path, '/v1/images/edits');
});

await row('speech arrives byte for byte', async () => {
  const answer = await client.audio.speech.create({ model: 'm', voice: 'alloy', input: 'hello' });
  const sound = Buffer.from(await answer.arrayBuffer());
  assert.deepEqual([...sound], Array.from({ length: 5 * 1024 }, (_, place) => place % 251));
});

await row("a form's file is transcribed, its model renamed, and nothing else changed", async () => {
  for (const model of ['m', 'alias-of-m']) {
    const [fetch, kept] = keepingFetch();
    const file = await toFile(FILE, 'a.wav');
    const heard = await clientOf({ fetch }).audio.transcriptions.create({ model, file });
    assert.equal(heard.text, WORDS);
    const record = await seen(OPENAI);
    assert.equal(record.headers['content-type'], kept.headers.get('content-type'));
    const expected = kept.body.toString('latin1').replace(`\r\n${model}\r\n`, '\r\nm\r\n');
    assert.equal(record.body_sha256, digest(Buffer.from(expected, 'latin1')));
  }
});

await row('a transcript is streamed', async () => {
  const file = await toFile(FILE, 'a.wav');
  const events = await all(client.audio.transcriptions.create({ model: 'm', file, stream: true }));
  assert.deepEqual([events.at(-1).type, events.at(-1).text], ['transcript.text.done', WORDS]);
});

await row('a text is moderated', async () => {
  const answer = await client.moderations.create({ model: 'm', input: 'hello' });
  assert.equal(answer.results[0].flagged, false);
});

await row('documents are ranked by a raw post', async () => {
  const body = { model: 'm', query: 'q', documents: ['a', 'b'] };
  const answer = await client.post('/rerank', { body });
  assert.deepEqual(answer.results.map((result) => result.index), [1, 0]);
});

await row('the models are listed and each can be asked for', async () => {
  const names = (await all(client.models.list())).map((model) => model.id);
  for (const name of ['m', 'alias-of-m', 'claude']) assert.ok(names.includes(name), names.join());
  assert.equal((await client.models.retrieve('alias-of-m')).id, 'alias-of-m');
});

// What is refused, and how it is raised.

await row('path_not_allowed is NotFoundError', async () => {
  const elsewhere = clientOf({ baseURL: `http://${place.gateway}/v2` });
  const deed = () => chat({}, elsewhere);
  hasFourKeys(await raises(OpenAI.NotFoundError, deed, 404, 'path_not_allowed'));
});

await row('missing_required_header is PermissionDeniedError', async () => {
  const deed = () => chat({}, clientOf({ defaultHeaders: {} }));
  await raises(OpenAI.PermissionDeniedError, deed, 403, 'missing_required_header');
});

await row('invalid_api_key is AuthenticationError', async () => {
  const stranger = clientOf({ apiKey: 'sk-of-a-stranger' });
  for (const deed of [() => chat({}, stranger), () => all(stranger.models.list())]) {
    await raises(OpenAI.AuthenticationError, deed, 401, 'invalid_api_key');
  }
  assert.equal(await asked(OPENAI), 0);
});

await row('model_not_found is NotFoundError', async () => {
  const deed = () => chat({ model: 'x' });
  const error = await raises(OpenAI.NotFoundError, deed, 404, 'model_not_found');
  assert.equal(error.param, 'model');
  await raises(OpenAI.NotFoundError, () => client.models.retrieve('x'), 404, 'model_not_found');
});

await row('model_not_allowed is PermissionDeniedError and such models are not listed', async () => {
  const narrow = clientOf({ apiKey: place.key_of_m });
  assert.ok((await chat({}, narrow)).choices);
  const deed = () => chat({ model: 'pair' }, narrow);
  await raises(OpenAI.PermissionDeniedError, deed, 403, 'model_not_allowed');
  const names = (await all(narrow.models.list())).map((model) => model.id);
  assert.deepEqual(names.sort(), ['alias-of-m', 'm']);
});

await row('what cannot be understood or is too much is BadRequestError', async () => {
  const long = [{ role: 'user', content: 'word '.repeat(20_000) }];
  for (const [options, code] of [
    [{ stream: 'yes' }, 'invalid_request'],
    [{ messages: long }, 'input_too_large'],
    [{ messages: Array(5).fill(MESSAGES[0]) }, 'too_many_messages'],
  ]) {
    await raises(OpenAI.BadRequestError, () => chat(options), 400, code);
  }
});

await row('body_too_large and unsupported_media_type are errors of their status', async () => {
  const messages = [{ role: 'user', content: 'word '.repeat(80_000) }];
  await raises(APIError, () => chat({ messages }), 413, 'body_too_large');
  const headers = { 'content-type': 'text/plain' };
  const deed = () => chat({}, client, { headers });
  await raises(APIError, deed, 415, 'unsupported_media_type');
});

await row('rate_limit_exceeded is RateLimitError and says when to come back', async () => {
  const deed = async () => [await chat({ model: 'limited' }), await chat({ model: 'limited' })];
  const { headers } = await raises(RateLimitError, deed, 429, 'rate_limit_exceeded');
  const [seconds, ms] = ['retry-after', 'retry-after-ms'].map((name) => Number(headers.get(name)));
  assert.ok(seconds > 0 && seconds <= 60 && ms > 0 && ms <= 60_000, `${seconds} ${ms}`);
  assert.equal(headers.get('x-ratelimit-limit-requests'), '1');
  assert.equal(headers.get('x-ratelimit-remaining-requests'), '0');
});

await row('overloaded and circuit_open are InternalServerError', async () => {
  await fault(OPENAI, { stall_after_tokens: 1 });
  const stream = await chat({ model: 'narrow', stream: true });
  const reader = stream[Symbol.asyncIterator]();
  await reader.next();
  const narrow = () => chat({ model: 'narrow' });
  const full = await raises(InternalServerError, narrow, 503, 'overloaded');
  assert.ok(full.headers.get('retry-after'));
  stream.controller.abort();
  const open = await raises(InternalServerError, () => chat({ model: 'open' }), 503, 'circuit_open');
  assert.ok(Number(open.headers.get('retry-after')) > 0);
});

await row('the failures of an upstream are InternalServerError', async () => {
  const nobody = () => chat({ model: 'nobody' });
  hasFourKeys(await raises(InternalServerError, nobody, 502, 'upstream_unavailable'));
  await raises(InternalServerError, () => chat({ model: 'locked' }), 502, 'upstream_auth');
  await fault(OPENAI, { hang: 'accept' });
  await raises(InternalServerError, () => chat({ model: 'hasty' }), 504, 'upstream_timeout');
  await fault(OPENAI, { status: 302 });
  await raises(InternalServerError, chat, 502, 'upstream_redirect');
  for (const status of [500, 502, 503, 529]) {
    await fault(OPENAI, { status });
    await raises(InternalServerError, chat, status, 'upstream_error');
  }
});

await row('an error within a success, or no answer at all, is InternalServerError', async () => {
  await fault(OPENAI, { error_in_stream: true });
  for (const deed of [chatStream, textStream, responseStream]) {
    await raises(InternalServerError, deed, 502, 'upstream_error');
  }
  for (const body of ['', '<html>', '{}']) {
    await fault(OPENAI, { body });
    await raises(InternalServerError, chat, 502, 'upstream_error');
  }
});

await row("an upstream's refusal of the request is raised as it came", async () => {
  for (const [status, kind] of [
    [400, OpenAI.BadRequestError],
    [422, OpenAI.UnprocessableEntityError],
  ]) {
    await fault(OPENAI, { status });
    const error = await raises(kind, chat, status);
    assert.match(error.message, /told to fail/);
  }
});

// A stream that breaks off raises and never ends quietly.

async function breaksOff(behaviour) {
  for (const deed of [chatStream, textStream, responseStream]) {
    await fault(OPENAI, { tokens: 8, ...behaviour });
    const error = await raises(APIError, deed);
    assert.equal(codeOf(error), 'stream_interrupted', `${deed}: ${error.message}`);
    assert.ok(error.message && error.type);
  }
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
  await fault(OPENAI, { first_token_ms: 2500 });
  const chunks = await chatStream();
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join(''), WORDS);
  assert.equal((await responseStream()).at(-1).type, 'response.completed');
});

await row('a failure after the head raises', async () => {
  await fault(OPENAI, { hang: 'accept' });
  const error = await raises(APIError, () => all(chat({ model: 'dull', stream: true }, patient)));
  assert.equal(codeOf(error), 'upstream_timeout');
  assert.equal(await askings(OPENAI), 1);
});

await row('what came before the break was delivered', async () => {
  await fault(OPENAI, { tokens: 8, cut_after_tokens: 3 });
  let words = '';
  await raises(APIError, async () => {
    for await (const chunk of await chat({ stream: true })) {
      words += chunk.choices[0].delta.content ?? '';
    }
  });
  assert.equal(words, 'token0 token1 token2 ');
});

await row('the helpers raise at a break too', async () => {
  for (const behaviour of [{ cut_after_tokens: 3 }, { finish_quietly_after_tokens: 3 }]) {
    await fault(OPENAI, behaviour);
    const chatting = client.chat.completions.stream({ model: 'm', messages: MESSAGES });
    await raises(APIError, () => chatting.finalContent());
    const responding = client.responses.stream({ model: 'm', input: 'hello' });
    await raises(APIError, () => responding.finalResponse());
  }
});

await row('cut speech raises', async () => {
  await fault(OPENAI, { cut_after_tokens: 3 });
  const speak = () => client.audio.speech.create({ model: 'm', voice: 'alloy', input: 'hello' });
  await assert.rejects(async () => (await speak()).arrayBuffer());
});

// The client's own retries do not multiply the gateway's.

await row('a final failure is not retried', async () => {
  for (const behaviour of [{ status: 500 }, { status: 503 }, { reset: true }]) {
    for (const mock of [OPENAI, ANTHROPIC]) await fault(mock, behaviour);
    await forget(OPENAI, ANTHROPIC);
    const deed = () => chat({ model: 'pair' }, patient);
    await isAskedOnce(await raises(InternalServerError, deed));
  }
});

await row('a broken stream is not asked for again', async () => {
  await fault(OPENAI, { cut_after_tokens: 3 });
  await raises(APIError, () => all(chat({ stream: true }, patient)));
  assert.equal(await asked(OPENAI), 1);
});

await row('a full endpoint is asked again once when it said', async () => {
  await fault(OPENAI, { status: 429, retry_after: '1', fail_next: 1 });
  const [answer, seconds] = await timed(() => chat({ model: 'paced' }, patient));
  assert.equal(answer.choices[0].message.content, WORDS);
  assert.ok(seconds >= 1 && seconds < 10, `${seconds} s`);
  assert.equal(await asked(OPENAI), 2);
});

await row('a pause of more than a minute is not waited for', async () => {
  // Left to itself this client would come back after half a second.
  await fault(OPENAI, { status: 429, retry_after: '90' });
  const deed = () => raises(RateLimitError, () => chat({ model: 'resting' }, patient), 429);
  const [error, seconds] = await timed(deed);
  assert.equal(error.headers.get('x-should-retry'), 'false');
  assert.ok(Number(error.headers.get('retry-after')) > 60 && seconds < 10, `${seconds} s`);
  assert.equal(await asked(OPENAI), 1);
});

end(`openai ${VERSION} for JavaScript`);
