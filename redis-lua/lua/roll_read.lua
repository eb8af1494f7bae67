-- Reads of the roll what has changed since the caller last read it. Time is the server's.
--
-- KEYS[1]  rows: a hash, name to "1 GENERATION NONCE MARK PULSE ADDRESS"
-- KEYS[2]  what members say: a hash, name to bytes
-- KEYS[3]  leases: a sorted set, name by its end in milliseconds
-- KEYS[4]  changes: a sorted set, name by the number of its last change
-- ARGV[1]  number of the last change that the caller knows; 0: it knows none
-- ARGV[2]  moment up to which it knows whose lease is over, in milliseconds
-- ARGV[3]  how many bytes of rows are enough, in bytes
-- Returns  {moment in milliseconds, number of the last change in this answer,
--           1 if there is more to be read, 1 if this begins with the first row,
--           {names whose lease ended since},
--           {name, row, what it says or nil if that is older, 1 if its lease runs, ...}}
local rows, said, leases, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local since, since_ms, page_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local MEMBERS_MAX = 1024
local NAME_BYTES_MAX = 253
local ROW_BYTES_MAX = 1024
local SAID_BYTES_MAX = 256 * 1024
-- Greater numbers are not whole any more.
local NUMBER_MAX = '9007199254740991'

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Numbers that the caller knows and nobody here does were lost, or all was: it begins anew.
local last = redis.call('ZREVRANGEBYSCORE', changes, NUMBER_MAX, '0', 'WITHSCORES', 'LIMIT', 0, 1)
if since > tonumber(last[2] or '0') then
  since = 0
end
local is_from_start = since == 0 and 1 or 0
local over = redis.call(
  'ZRANGEBYSCORE', leases, '(' .. text(since_ms), text(now_ms), 'LIMIT', 0, MEMBERS_MAX)
local changed = redis.call(
  'ZRANGEBYSCORE', changes, '(' .. text(since), NUMBER_MAX, 'WITHSCORES', 'LIMIT', 0, MEMBERS_MAX)

local found, bytes, change, more = {}, 0, since, 0
for at = 1, #changed, 2 do
  if bytes >= page_bytes then
    more = 1
    break
  end
  local name = changed[at]
  change = tonumber(changed[at + 1])
  local is_fit = #name <= NAME_BYTES_MAX and redis.call('HSTRLEN', rows, name) <= ROW_BYTES_MAX
  local row = is_fit and redis.call('HGET', rows, name)
  if row then
    local mark = tonumber(string.match(row, '^1 %d+ %d+ (%d+) ') or '')
    local is_news = mark and mark > since
    local word = is_news
      and redis.call('HSTRLEN', said, name) <= SAID_BYTES_MAX
      and redis.call('HGET', said, name)
    local lease_end = tonumber(redis.call('ZSCORE', leases, name) or '')
    table.insert(found, name)
    table.insert(found, row)
    table.insert(found, word or false)
    table.insert(found, lease_end and lease_end > now_ms and 1 or 0)
    bytes = bytes + #name + #row + (word and #word or 0)
  end
end
if #changed >= 2 * MEMBERS_MAX then
  more = 1
end
return { text(now_ms), text(change), more, is_from_start, over, found }
