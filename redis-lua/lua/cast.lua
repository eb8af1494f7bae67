-- Keeps the caller's word in place of its earlier one, counts all words that stand, and opens the
-- endpoint if more than half of the electorate say so, by their votes or since they have it out.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the word's number in this life, 7 how long it stands: microseconds, 8 the incident that the
-- vote is for, 9 what it rests on: first, second, or '*' for no vote, 10 whether the caller saw bad
-- evidence itself: 1 or 0, 11 the step by which it has the endpoint out, as in words.lua without `at`,
-- or '*', 12 of how many members a majority is taken, 13 the members whose words do not count,
-- separated by spaces, 14 how many times the cool-down of an opening has doubled, or '*' if this cast
-- must not open, 15 that cool-down: microseconds.
-- Outcomes: done, opened, stale, fenced.

local WORDS_MAX = 1024
local SECONDING_FROM = 3
local WITNESSES_MIN = 2

local seq, span = tonumber(ARGV[6]), tonumber(ARGV[7])
local hold = ARGV[11] == '*' and '*' or text_of(NOW) .. ' ' .. ARGV[11]
local electorate = math.max(tonumber(ARGV[12]), 1)
local level, cool_down = ARGV[14], tonumber(ARGV[15])

-- All words that stand, by voter, with how many there are, and the voters of those that do not.
local function load_words(page)
  local raw = redis.call('HGETALL', KEYS[2])
  local words, count, lapsed = {}, 0, {}
  for index = 1, #raw, 2 do
    local word = name_of(raw[index]) and read_word(raw[index + 1])
    if word and is_running(word) then
      words[raw[index]] = word
      count = count + 1
    else
      lapsed[#lapsed + 1] = raw[index]
    end
    page.unread = page.unread + (word and 0 or 1)
  end
  return words, count, lapsed
end

-- Lapsed words go, so many at a time as a call takes arguments.
local function drop(voters)
  for first = 1, #voters, 1000 do
    redis.call('HDEL', KEYS[2], unpack(voters, first, math.min(first + 999, #voters)))
  end
end

local function keep_word()
  local text = table.concat({ text_of(NOW), ARGV[7], ARGV[2], ARGV[6], ARGV[8], ARGV[9], ARGV[10],
    ARGV[12], hold }, ' ')
  redis.call('HSET', KEYS[2], BY, text)
  local expiry = math.ceil(span / 1000) + LINGER
  if redis.call('PTTL', KEYS[2]) < expiry then
    redis.call('PEXPIRE', KEYS[2], text_of(expiry))
  end
  return read_word(text)
end

local function closed_of(page)
  local step = page.step
  if not step then
    return 0
  end
  return is_open(step) and math.max(step.incident - 1, 0) or step.incident
end

local function discounted_of(text)
  local discounted = {}
  for name in text:gmatch('[^ ]+') do
    discounted[name] = true
  end
  return discounted
end

-- Adds one word to the tally. The majority is taken of the most members that anybody says whose word
-- counts; who says nothing takes back what it said.
local function add(tally, closed, voter, word)
  if word.basis ~= '*' or word.is_witness or word.hold ~= '*' then
    tally.electorate = math.max(tally.electorate, word.electorate)
  end
  local is_first = word.basis == 'first'
  if is_first or word.is_witness then
    tally.witnesses = tally.witnesses + 1
  end
  local above = word.incident - closed
  if word.basis ~= '*' and above > 0 and above <= INCIDENT_GAP_MAX then
    local kind = is_first and 'first_hand' or 'seconded'
    tally[kind] = tally[kind] + 1
    tally.incident = math.max(tally.incident, word.incident)
  end
  local step = word.hold
  if step == '*' or not is_open(step) or step.incident <= closed then
    return
  end
  tally.holders = tally.holders + 1
  if step.incident <= tally.written then
    return
  end
  tally.heirs = tally.heirs + 1
  local known = tally.furthest
  local is_further = not known or outranks(step, known)
  if is_further or not outranks(known, step) and is_after(tally.of, voter) then
    tally.furthest, tally.of = step, voter
  end
end

local function tally_of(page, words)
  local closed, discounted = closed_of(page), discounted_of(ARGV[13])
  local tally = { first_hand = 0, seconded = 0, holders = 0, heirs = 0, witnesses = 0, incident = 0,
    electorate = electorate, written = page.step and page.step.incident or 0 }
  for voter, word in pairs(words) do
    if not discounted[voter] then
      add(tally, closed, voter, word)
    end
  end
  local has_witnesses = tally.electorate < SECONDING_FROM or tally.witnesses >= WITNESSES_MIN
  tally.counted = tally.first_hand + (has_witnesses and tally.seconded or 0)
  tally.quorum = math.floor(tally.electorate / 2) + 1
  return tally
end

local function open(page, step)
  end_lead(page)
  set_step(page, step)
  return answer(page, 'opened')
end

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local words, standing, lapsed = load_words(page)
drop(lapsed)
local known = words[BY]
if known and known.generation == GENERATION and known.seq >= seq then
  return answer(page, 'done')
end
if not known and standing >= WORDS_MAX then
  return answer(page, 'stale')
end
local word = keep_word()
words[BY] = is_running(word) and word or nil

local tally = tally_of(page, words)
page.count = { tally.first_hand, tally.seconded, tally.counted, tally.holders, tally.quorum }
put(page, 'count', table.concat(page.count, ' '))
if level == '*' then
  return answer(page, 'done')
end
-- In a later incident than an open one that is written: the ledger has missed how that one ended.
if tally.heirs >= tally.quorum then
  turn(page)
  local step, passed = tally.furthest, math.max(NOW - tally.furthest.at, 0)
  step.remaining = math.max(step.remaining - passed, 0)
  step.age = step.age + passed
  return open(page, step)
end
if tally.counted >= tally.quorum and not (page.step and is_open(page.step)) then
  turn(page)
  return open(page, { incident = math.max(tally.incident, raised(page.epoch, 1)), failures = 0,
    level = tonumber(level), stage = 'waiting', turn = 0, successes = 0, remaining = cool_down,
    age = 0, steward = BY, holder = '*' })
end
return answer(page, 'done')
