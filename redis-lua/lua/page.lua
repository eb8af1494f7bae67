-- One endpoint's page: read whole, changed by the rule, written once at the end, answered whole.
--
-- The rule is `quorum::ledger::Book`, function by function; a test runs both side by side.
--
-- KEYS, of every script: 1 state (hash), 2 votes (hash: voter to word), 3 lease (string: who leads).
-- ARGV, of every script: 1 the caller's name, 2 its generation, and what it has seen: 3 version, 4
-- epoch, 5 lead. What follows stands in the script's own header.
-- Time is the server's `TIME`, in microseconds.
-- Returns {outcome, 1 if the version rose, how many values could not be read, the server's time,
-- version, epoch, lead, step, order, leading, count}; each of the last four is a list, or nil for none.

local NUMBER_LEAP = 65536
local EPOCH_LEAP = 16
local INCIDENT_GAP_MAX = 1024
-- A key goes when nothing in it has mattered for so long: milliseconds.
local LINGER = 60000

local BY = ARGV[1]
local GENERATION = tonumber(ARGV[2])
local SEEN = { version = tonumber(ARGV[3]), epoch = tonumber(ARGV[4]), lead = tonumber(ARGV[5]) }
local NOW = clock()

-- Whether a lease that was given for a span at a moment still holds. A clock that was set back by more
-- than the span ends it as well.
local function is_running(lease)
  return math.abs(NOW - lease.at) < lease.span
end

local function read(page, raw, reader)
  if not raw then
    return nil
  end
  local value = reader(raw)
  if value == nil then
    page.unread = page.unread + 1
  end
  return value
end

local function run_of(text)
  return #text <= 64 and text:match('^%x+$') or nil
end

local function load_page()
  local raw = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'lead', 'step', 'order', 'count', 'run')
  local page = { unread = 0, changes = {} }
  page.version = read(page, raw[1], read_number) or 0
  page.epoch = read(page, raw[2], read_number) or 0
  page.lead = read(page, raw[3], read_number) or 0
  page.step = read(page, raw[4], read_step)
  page.order = read(page, raw[5], read_order)
  page.count = read(page, raw[6], read_count) or { 0, 0, 0, 0, 0 }
  page.run = read(page, raw[7], run_of)
  page.leading = read(page, redis.call('GET', KEYS[3]), read_leading)
  if page.leading and not is_running(page.leading) then
    page.leading = nil
  end
  page.before = { version = page.version, epoch = page.epoch, lead = page.lead }
  return page
end

local function own_word(page)
  local word = read(page, redis.call('HGET', KEYS[2], BY), read_word)
  return word and is_running(word) and word or nil
end

-- Whether a word or a lead that stands is of a later life of the caller.
local function is_of_earlier_life(page)
  local word, leading = own_word(page), page.leading
  return word and word.generation > GENERATION
    or leading and leading.holder == BY and leading.generation > GENERATION
end

local function raised(number, by)
  return math.min(number + by, NUMBER_MAX)
end

local function put(page, field, value)
  page.changes[#page.changes + 1] = field
  page.changes[#page.changes + 1] = value
end

-- Raises the version, and everything by a leap if the last change was in another run.
local function turn(page)
  local run = run_of_server()
  if run and page.run and page.run ~= run then
    page.version = raised(page.version, NUMBER_LEAP)
    page.epoch = raised(page.epoch, EPOCH_LEAP)
    page.lead = raised(page.lead, NUMBER_LEAP)
  end
  if run and page.run ~= run then
    page.run = run
    put(page, 'run', run)
  end
  page.version = raised(page.version, 1)
end

-- Takes in what the caller has seen.
local function heed(page)
  if SEEN.version > page.version then
    page.version = SEEN.version
    turn(page)
  end
  page.epoch = math.max(page.epoch, SEEN.epoch)
  page.lead = math.max(page.lead, SEEN.lead)
end

local function is_open(step)
  return step.stage ~= 'closed'
end

-- Whether one name is after another, byte by byte: the server's own order goes by its locale.
local function is_after(one, other)
  for index = 1, math.min(#one, #other) do
    local difference = one:byte(index) - other:byte(index)
    if difference ~= 0 then
      return difference > 0
    end
  end
  return #one > #other
end

-- The total order of steps.
local function outranks(step, other)
  if step.incident ~= other.incident then
    return step.incident > other.incident
  end
  if step.failures ~= other.failures then
    return step.failures > other.failures
  end
  if step.stage ~= other.stage then
    return STAGES[step.stage] > STAGES[other.stage]
  end
  if step.turn ~= other.turn then
    return step.turn > other.turn
  end
  if step.successes ~= other.successes then
    return step.successes > other.successes
  end
  return is_after(step.holder, other.holder)
end

-- Makes the step the one that stands, from this moment on.
local function set_step(page, step)
  step.at = NOW
  page.step = step
  page.epoch = math.max(page.epoch, step.incident)
  put(page, 'step', write_step(step))
end

local function end_lead(page)
  page.leading = nil
  redis.call('DEL', KEYS[3])
end

local function set_lead(page, number, hold)
  local leading = { at = NOW, span = hold, number = number, generation = GENERATION, holder = BY }
  page.leading = hold > 0 and leading or nil
  local expiry = math.ceil(hold / 1000) + LINGER
  redis.call('SET', KEYS[3], write_leading(leading), 'PX', text_of(expiry))
end

-- Why the caller does not lead under this number; nil: it does.
local function refusal(page, number)
  local leading = page.leading
  if not leading then
    return 'fenced'
  end
  if leading.holder ~= BY then
    return 'led'
  end
  local is_it = leading.generation == GENERATION and leading.number == number
  return not is_it and 'fenced' or nil
end

-- A step as an argument says it: without the moment, which is this one.
local function step_argument(text)
  return read_step(text_of(NOW) .. ' ' .. text)
end

-- Makes a step that was taken the one that stands. A closing ends the lead; the words for what it
-- closed are void by their incident.
local function take_step(page, step)
  turn(page)
  if not is_open(step) then
    end_lead(page)
  end
  set_step(page, step)
end

local function save_page(page)
  for _, field in ipairs({ 'version', 'epoch', 'lead' }) do
    if page[field] ~= page.before[field] then
      put(page, field, text_of(page[field]))
    end
  end
  if #page.changes > 0 then
    redis.call('HSET', KEYS[1], unpack(page.changes))
  end
end

local function left(remaining, at)
  return math.max(remaining - math.max(NOW - at, 0), 0)
end

-- Writes what has changed, and says how the page stands.
local function answer(page, outcome)
  save_page(page)
  local step, order, leading = page.step, page.order, page.leading
  return {
    outcome,
    page.version ~= page.before.version and 1 or 0,
    page.unread,
    NOW,
    page.version,
    page.epoch,
    page.lead,
    step and { step.incident, step.failures, step.level, step.stage, step.turn, step.successes,
      left(step.remaining, step.at), step.age + math.max(NOW - step.at, 0), step.steward,
      step.holder } or false,
    order and { order.stamp, order.forced,
      order.remaining == '*' and -1 or left(order.remaining, order.at), order.author,
      order.reason } or false,
    leading and { leading.holder, leading.generation, leading.number,
      math.min(left(leading.span, leading.at), leading.span) } or false,
    page.count,
  }
end
