-- Writes a member's own row of the roll, and lets it count as alive for a lease from here on.
--
-- The greater pair of generation and nonce is the member: an older life, or another process that
-- goes under the same name, is told so and writes nothing. Time is the server's.
--
-- KEYS[1]  rows: a hash, name to "1 GENERATION NONCE MARK PULSE ADDRESS"
-- KEYS[2]  what members say: a hash, name to bytes
-- KEYS[3]  leases: a sorted set, name by its end in milliseconds
-- KEYS[4]  changes: a sorted set, name by the number of its last change
-- ARGV[1]  name, at most 253 bytes
-- ARGV[2]  generation, below 2^53
-- ARGV[3]  nonce of the process, below 2^53
-- ARGV[4]  pulse, below 2^53
-- ARGV[5]  address: letters, digits, and any of ._:[]-
-- ARGV[6]  lease in milliseconds, at most LEASE_MAX_MS; 0: the member goes
-- ARGV[7]  mark of what the caller said last, as it was returned; 0: it has said nothing
-- ARGV[8]  what it says from here on; '': as before
-- Returns  {'done', mark, 1 if nobody could have known it alive}
--          {'whole'}: nothing is written, for what it said before is not here
--          {'younger', 1 if it is alive, address, generation}: nothing is written
--          {'full'}: nothing is written, for there are as many members as there may be
local rows, said, leases, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, generation, nonce, pulse = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local address, lease_ms, mark, word = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]

local MEMBERS_MAX = 1024
local ROW_BYTES_MAX = 1024
-- What ends later than this was written by a clock that ran ahead, or by a stranger.
local LEASE_MAX_MS = 300 * 1000
local AHEAD_MAX_US = 3600 * 1000 * 1000
-- A member that is gone is told of for as long as gossip would; what nobody renews goes altogether.
local KEEP_MS = 15 * 60 * 1000
local EXPIRE_MS = 60 * 60 * 1000
-- At most so many are tidied up in one call.
local TIDY_MAX = 16

local function text(number)
  return string.format('%.0f', number)
end

local function remove(gone)
  redis.call('HDEL', rows, gone)
  redis.call('HDEL', said, gone)
  redis.call('ZREM', leases, gone)
  redis.call('ZREM', changes, gone)
end

local function is_less(one, other)
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)

-- The row as it stands; one that cannot be read is none.
local row = redis.call('HSTRLEN', rows, name) <= ROW_BYTES_MAX and redis.call('HGET', rows, name)
local their_generation, their_nonce, their_mark, their_address
if row then
  their_generation, their_nonce, their_mark, their_address =
    string.match(row, '^1 ([1-9]%d*) (%d+) (%d+) %d+ ([%w%._:%[%]-]*)$')
end
local lease_end = tonumber(redis.call('ZSCORE', leases, name) or '')
local is_alive = lease_end ~= nil and lease_end > now_ms
local is_mine = their_generation == generation and their_nonce == nonce

if their_generation and not is_mine and #their_generation <= 16 and #their_nonce <= 16 then
  local is_older = is_less(their_generation, generation)
    or their_generation == generation and is_less(their_nonce, nonce)
  if not is_older then
    return { 'younger', is_alive and 1 or 0, their_address, their_generation }
  end
end

if word == '' then
  if not is_mine or their_mark ~= mark or redis.call('HEXISTS', said, name) == 0 then
    return { 'whole' }
  end
end

redis.call('ZREMRANGEBYSCORE', changes, '(' .. text(now_us + AHEAD_MAX_US), '+inf')
local ahead = { '(' .. text(now_ms + LEASE_MAX_MS), '+inf', 'LIMIT', 0, TIDY_MAX }
for _, other in ipairs(redis.call('ZRANGEBYSCORE', leases, unpack(ahead))) do
  redis.call('ZADD', leases, now_ms, other)
end
local past = { '-inf', text(now_ms - KEEP_MS), 'LIMIT', 0, TIDY_MAX }
for _, other in ipairs(redis.call('ZRANGEBYSCORE', leases, unpack(past))) do
  remove(other)
end

if not lease_end and redis.call('ZCARD', leases) >= MEMBERS_MAX then
  local oldest = redis.call('ZRANGEBYSCORE', leases, '-inf', text(now_ms), 'LIMIT', 0, 1)
  if not oldest[1] then
    return { 'full' }
  end
  remove(oldest[1])
end

-- A number that never comes twice, also when a failover has lost the last ones.
local last = redis.call('ZREVRANGE', changes, 0, 0, 'WITHSCORES')
local change = text(math.max(now_us, math.floor(tonumber(last[2] or '0')) + 1))
if word ~= '' then
  mark = change
  redis.call('HSET', said, name, word)
end
local new_row = table.concat({ '1', generation, nonce, mark, pulse, address }, ' ')
local is_new = not is_mine or not is_alive
local is_listed = redis.call('ZSCORE', changes, name)
if is_new or new_row ~= row or not is_listed or lease_ms == 0 then
  redis.call('HSET', rows, name, new_row)
  redis.call('ZADD', changes, change, name)
end
-- A lease that is over ends a little later than now, so that whoever has just read hears of it.
redis.call('ZADD', leases, text(now_ms + math.max(lease_ms, 1)), name)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, EXPIRE_MS)
end
return { 'done', mark, is_new and 1 or 0 }
