-- How what we keep is written and read. What is not exactly as we write it is read as nil, and nothing
-- of it goes into an error or an answer.
--
-- Fields are separated by one space. '*' stands for none. Times and durations are microseconds.
--   step    at incident failures level stage turn successes remaining age steward holder
--   word    at lease generation seq incident basis witness electorate, then a step or '*'
--   leading at hold number generation holder
--   order   at stamp forced remaining author reason
--   count   first_hand seconded counted holders quorum

-- A double is exact up to here.
local NUMBER_MAX = 9007199254740991
local INCIDENT_MAX = 1099511627776
local SMALL_MAX = 4294967295
local NAME_BYTES_MAX = 253
local VALUE_BYTES_MAX = 2048
-- Of a reason, with what is not plain in it as %XX.
local REASON_BYTES_MAX = 768

local STAGES = { waiting = 0, probing = 1, canary = 2, closed = 3 }
local FORCED = { open = true, closed = true, auto = true }
local BASES = { first = true, second = true, ['*'] = true }

-- One match for all fields: a majority of a large fleet is counted at each cast.
local NAME = '([A-Za-z0-9._%-]+)'
local NAME_OR_NONE = '([A-Za-z0-9._%-*]+)'
local STEP = '^(%d+) (%d+) (%d+) (%d+) (%l+) (%d+) (%d+) (%d+) (%d+) ' .. NAME .. ' ' .. NAME_OR_NONE .. '$'
local WORD = '^(%d+) (%d+) (%d+) (%d+) (%d+) ([%l*]+) ([01]) (%d+) (.+)$'
local LEADING = '^(%d+) (%d+) (%d+) (%d+) ' .. NAME .. '$'
local ORDER = '^(%d+) (%d+) (%l+) ([%d*]+) ' .. NAME .. ' ([!-~]+)$'
local COUNT = '^(%d+) (%d+) (%d+) (%d+) (%d+)$'

local function text_of(number)
  return string.format('%.0f', number)
end

-- The number that some digits are, as we write it.
local function number_of(digits, most)
  local number = #digits <= 16 and tonumber(digits)
  local is_it = number and number <= (most or NUMBER_MAX) and (digits:byte() ~= 48 or digits == '0')
  return is_it and number or nil
end

local function read_number(text)
  return text:find('^%d+$') and number_of(text) or nil
end

local function name_of(text)
  return #text <= NAME_BYTES_MAX and text:match('^' .. NAME .. '$') or nil
end

local function is_short(text)
  return #text <= VALUE_BYTES_MAX
end

local function read_step(text)
  local at, incident, failures, level, stage, turn, successes, remaining, age, steward, holder
  if is_short(text) then
    at, incident, failures, level, stage, turn, successes, remaining, age, steward, holder =
      text:match(STEP)
  end
  if not at or not STAGES[stage] or (stage == 'canary') == (holder == '*') then
    return nil
  end
  if stage ~= 'canary' and (turn ~= '0' or successes ~= '0' or holder ~= '*') then
    return nil
  end
  local step = {
    at = number_of(at),
    incident = number_of(incident, INCIDENT_MAX),
    failures = number_of(failures, SMALL_MAX),
    level = number_of(level, SMALL_MAX),
    stage = stage,
    turn = number_of(turn, SMALL_MAX),
    successes = number_of(successes, SMALL_MAX),
    remaining = number_of(remaining),
    age = number_of(age),
    steward = name_of(steward),
    holder = holder == '*' and '*' or name_of(holder),
  }
  local is_placed = step.at and step.incident and step.failures and step.level
  local is_timed = step.turn and step.successes and step.remaining and step.age
  return is_placed and is_timed and step.steward and step.holder and step or nil
end

local function write_step(step)
  return table.concat({ text_of(step.at), text_of(step.incident), text_of(step.failures),
    text_of(step.level), step.stage, text_of(step.turn), text_of(step.successes),
    text_of(step.remaining), text_of(step.age), step.steward, step.holder }, ' ')
end

local function read_word(text)
  local at, span, generation, seq, incident, basis, witness, electorate, hold
  if is_short(text) then
    at, span, generation, seq, incident, basis, witness, electorate, hold = text:match(WORD)
  end
  if not at or not BASES[basis] then
    return nil
  end
  local word = {
    at = number_of(at),
    span = number_of(span),
    generation = number_of(generation),
    seq = number_of(seq),
    incident = number_of(incident, INCIDENT_MAX),
    basis = basis,
    is_witness = witness == '1',
    electorate = number_of(electorate, SMALL_MAX),
    hold = hold == '*' and '*' or read_step(hold),
  }
  local is_numbered = word.generation and word.seq and word.incident and word.electorate
  return word.at and word.span and is_numbered and word.hold and word or nil
end

local function read_leading(text)
  local at, span, number, generation, holder
  if is_short(text) then
    at, span, number, generation, holder = text:match(LEADING)
  end
  if not at then
    return nil
  end
  local leading = {
    at = number_of(at),
    span = number_of(span),
    number = number_of(number),
    generation = number_of(generation),
    holder = name_of(holder),
  }
  local is_numbered = leading.number and leading.generation
  return leading.at and leading.span and is_numbered and leading.holder and leading or nil
end

local function write_leading(leading)
  return table.concat({ text_of(leading.at), text_of(leading.span), text_of(leading.number),
    text_of(leading.generation), leading.holder }, ' ')
end

local function read_order(text)
  local at, stamp, forced, remaining, author, reason
  if is_short(text) then
    at, stamp, forced, remaining, author, reason = text:match(ORDER)
  end
  if not at or not FORCED[forced] or #reason > REASON_BYTES_MAX then
    return nil
  end
  local order = {
    at = number_of(at),
    stamp = number_of(stamp),
    forced = forced,
    remaining = remaining == '*' and '*' or number_of(remaining),
    author = name_of(author),
    reason = reason,
  }
  return order.at and order.stamp and order.remaining and order.author and order or nil
end

local function read_count(text)
  local count = is_short(text) and { text:match(COUNT) } or {}
  for index, number in ipairs(count) do
    count[index] = number_of(number, SMALL_MAX)
  end
  return #count == 5 and count or nil
end
