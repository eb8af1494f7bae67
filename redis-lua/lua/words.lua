-- How what we keep is written and read. What is not exactly as we write it is read as nil, and nothing
-- of it goes into an error or an answer.
--
-- Fields are separated by one space. '*' stands for none. Times and durations are microseconds.
--   step    at incident failures level stage turn successes remaining age steward holder
--   word    at lease generation seq incident basis witness, then a step or '*'
--   leading at hold number generation holder
--   order   at stamp forced remaining author reason
--   count   first_hand seconded counted holders quorum

-- A double is exact up to here.
local NUMBER_MAX = 9007199254740991
local INCIDENT_MAX = 1099511627776
local SMALL_MAX = 4294967295
local NAME_BYTES_MAX = 253
local VALUE_BYTES_MAX = 2048

local STAGES = { waiting = 0, probing = 1, canary = 2, closed = 3 }
local FORCED = { open = true, closed = true, auto = true }

local function text_of(number)
  return string.format('%.0f', number)
end

local function number_of(text, most)
  if #text > 16 or not text:find('^%d+$') then
    return nil
  end
  local number = tonumber(text)
  return number <= (most or NUMBER_MAX) and number or nil
end

local function name_of(text)
  return #text <= NAME_BYTES_MAX and text:match('^[A-Za-z0-9._-]+$') or nil
end

-- The fields of a text, if there are `count` of them, or `other` where that may be as well; or nil.
local function split(text, count, other)
  if #text > VALUE_BYTES_MAX then
    return nil
  end
  local fields = {}
  for field in text:gmatch('[^ ]+') do
    fields[#fields + 1] = field
  end
  local is_it = #fields == count or #fields == other
  return is_it and table.concat(fields, ' ') == text and fields or nil
end

local function is_whole(table, ...)
  for _, field in ipairs({ ... }) do
    if table[field] == nil then
      return false
    end
  end
  return true
end

-- A step out of the fields from `first` on.
local function step_of(fields, first)
  local stage, holder = fields[first + 4], fields[first + 10]
  local step = {
    at = number_of(fields[first]),
    incident = number_of(fields[first + 1], INCIDENT_MAX),
    failures = number_of(fields[first + 2], SMALL_MAX),
    level = number_of(fields[first + 3], SMALL_MAX),
    stage = STAGES[stage] and stage,
    turn = number_of(fields[first + 5], SMALL_MAX),
    successes = number_of(fields[first + 6], SMALL_MAX),
    remaining = number_of(fields[first + 7]),
    age = number_of(fields[first + 8]),
    steward = name_of(fields[first + 9]),
    holder = holder == '*' and '*' or name_of(holder),
  }
  local is_step = is_whole(step, 'at', 'incident', 'failures', 'level', 'stage', 'turn', 'successes',
    'remaining', 'age', 'steward', 'holder')
  if not is_step or (stage == 'canary') == (holder == '*') then
    return nil
  end
  if stage ~= 'canary' and step.turn + step.successes > 0 then
    return nil
  end
  return step
end

local function read_step(text)
  local fields = split(text, 11)
  return fields and step_of(fields, 1)
end

local function write_step(step)
  return table.concat({ text_of(step.at), text_of(step.incident), text_of(step.failures),
    text_of(step.level), step.stage, text_of(step.turn), text_of(step.successes),
    text_of(step.remaining), text_of(step.age), step.steward, step.holder }, ' ')
end

local function read_word(text)
  local fields = split(text, 18, 8)
  if not fields or #fields == 8 and fields[8] ~= '*' then
    return nil
  end
  local basis, witness = fields[6], fields[7]
  local word = {
    at = number_of(fields[1]),
    span = number_of(fields[2]),
    generation = number_of(fields[3]),
    seq = number_of(fields[4]),
    incident = number_of(fields[5], INCIDENT_MAX),
    basis = (basis == 'first' or basis == 'second' or basis == '*') and basis or nil,
    is_witness = witness == '1',
    hold = #fields == 8 and '*' or step_of(fields, 8),
  }
  local is_word = is_whole(word, 'at', 'span', 'generation', 'seq', 'incident', 'basis', 'hold')
  return is_word and (witness == '0' or witness == '1') and word or nil
end

local function read_leading(text)
  local fields = split(text, 5)
  if not fields then
    return nil
  end
  local leading = {
    at = number_of(fields[1]),
    span = number_of(fields[2]),
    number = number_of(fields[3]),
    generation = number_of(fields[4]),
    holder = name_of(fields[5]),
  }
  return is_whole(leading, 'at', 'span', 'number', 'generation', 'holder') and leading or nil
end

local function write_leading(leading)
  return table.concat({ text_of(leading.at), text_of(leading.span), text_of(leading.number),
    text_of(leading.generation), leading.holder }, ' ')
end

local function read_order(text)
  local fields = split(text, 6)
  if not fields then
    return nil
  end
  local remaining, reason = fields[4], fields[6]
  local order = {
    at = number_of(fields[1]),
    stamp = number_of(fields[2]),
    forced = FORCED[fields[3]] and fields[3],
    remaining = remaining == '*' and '*' or number_of(remaining),
    author = name_of(fields[5]),
    reason = #reason <= 768 and reason:match('^[!-~]+$'),
  }
  local is_order = is_whole(order, 'at', 'stamp', 'forced', 'remaining', 'author', 'reason')
  return is_order and order or nil
end

local function read_count(text)
  local fields = split(text, 5)
  local count = {}
  for index = 1, fields and 5 or 0 do
    count[index] = number_of(fields[index], SMALL_MAX)
  end
  return #count == 5 and count or nil
end
