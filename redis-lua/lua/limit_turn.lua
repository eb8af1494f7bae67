-- One node's turn at one limited subject: what it corrects, owes, asks for and keeps, all in one step.
--
-- The rule is that of `window.rs`: moments that lie close together are one run, and a run counts until
-- its newest moment is a minute old. Time is the server's alone, in microseconds.
--
-- KEYS[1]  the minute: a list of runs "first last requests tokens", oldest first
-- KEYS[2]  the slots: a hash of node -> "generation count until"
-- ARGV[1]  requests a minute; ARGV[2] tokens a minute; ARGV[3] requests at a time; 0: not limited
-- ARGV[4]  node; ARGV[5] its generation
-- ARGV[6]  slots in use at the node; ARGV[7] free ones it would keep; ARGV[8] lease of all in microseconds
-- ARGV[9]  requests, ARGV[10] tokens that were admitted without the ledger; they are counted from now on
-- ARGV[11] requests, ARGV[12] tokens to be set aside, ARGV[13] for how many microseconds
-- ARGV[14] how many corrections follow, of five each: moment, requests and tokens that were counted
--          there, requests and tokens to be counted in their place; then the tokens of each demand
-- Returns  moment of the demands, moment of what is set aside, requests and tokens set aside,
--          requests and tokens that count, microseconds until none of either counts, slots of this node,
--          slots of all, values that could not be read; then for each demand two numbers:
--          0 granted, 1 requests, 2 tokens, 3 slots are full; microseconds until there is room (-1: never)

local MINUTE, RUN, AHEAD, RUNS_MAX, NODES_MAX = 60000000, 1000000, 2000000, 64, 1024
local MOST, SLOT_RETURNS_IN = 9000000000000000, 1000000
local minute, slots = KEYS[1], KEYS[2]
local rpm, tpm, concurrency = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local node, generation = ARGV[4], tonumber(ARGV[5])
local in_use, keep, lease = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local torn = 0

local function digits(value)
    return string.format('%.0f', value)
end

local function number(text)
    return text and #text <= 16 and tonumber(text) or nil
end

-- Takes what is under a key of another type for nothing, and makes place for ours.
local function read(command, key, ...)
    local value = redis.pcall(command, key, ...)
    if value.err then
        torn = torn + 1
        redis.call('DEL', key)
        return {}
    end
    return value
end

-- The runs that count, oldest first; how many of the list count no longer; whether all is to be written.
local function load()
    local runs, gone, is_anew = {}, 0, redis.call('EXISTS', minute) == 0
    local before = 0
    local items = read('LRANGE', minute, 0, RUNS_MAX)
    for _, item in ipairs(items) do
        local first, last, requests, tokens = string.match(item, '^(%d+) (%d+) (%d+) (%d+)$')
        local run = { number(first), number(last), number(requests), number(tokens), item }
        if not (run[1] and run[2] and run[3] and run[4]) or run[2] < run[1] or run[1] < before then
            torn = torn + 1
            is_anew = true
        else
            before = run[2]
            runs[#runs + 1] = run
        end
    end
    -- A longer list is not ours.
    is_anew = is_anew or #items > RUNS_MAX
    -- A clock that was set back: what counts is as old as it was, from here on.
    local newest = runs[#runs]
    local back = newest and newest[2] - (now + AHEAD) or 0
    if back > 0 then
        is_anew = true
        for _, run in ipairs(runs) do
            run[1], run[2] = math.max(run[1] - back, 0), math.max(run[2] - back, 0)
        end
    end
    local kept = {}
    for _, run in ipairs(runs) do
        if run[2] + MINUTE <= now then
            gone = gone + 1
        else
            kept[#kept + 1] = run
        end
    end
    return kept, gone, is_anew
end

local runs, gone, is_anew = load()
local sum = { 0, 0 }
for _, run in ipairs(runs) do
    sum[1], sum[2] = sum[1] + run[3], sum[2] + run[4]
end

-- Adds a load at a moment; returns the moment by which it is found again.
local function add(at, requests, tokens)
    sum[1], sum[2] = sum[1] + requests, sum[2] + tokens
    local run = runs[#runs]
    if run and at - run[1] < RUN then
        run[2] = math.max(run[2], at)
        run[3], run[4] = run[3] + requests, run[4] + tokens
        return math.max(at, run[1])
    end
    runs[#runs + 1] = { at, at, requests, tokens }
    return at
end

local function replace(at, was_requests, was_tokens, requests, tokens)
    for index = #runs, 1, -1 do
        local run = runs[index]
        if run[1] <= at then
            sum[1], sum[2] = sum[1] - run[3], sum[2] - run[4]
            run[3] = math.max(run[3] - was_requests, 0) + requests
            run[4] = math.max(run[4] - was_tokens, 0) + tokens
            sum[1], sum[2] = sum[1] + run[3], sum[2] + run[4]
            return
        end
    end
    if tokens > was_tokens then
        add(now, 0, tokens - was_tokens)
    end
end

-- In how long so much of requests (3) or tokens (4) will have left.
local function leaves_in(amount, figure)
    local left, period = 0, 0
    for _, run in ipairs(runs) do
        if left >= amount then
            break
        end
        left = left + run[figure]
        if run[figure] > 0 then
            period = run[2] + MINUTE - now
        end
    end
    return period
end

-- The slots of others, and whether a later life of this node has spoken.
local function others()
    local count, is_fenced = 0, false
    if concurrency == 0 then
        return count, is_fenced
    end
    local fields = read('HGETALL', slots)
    if #fields > 2 * NODES_MAX then
        torn = torn + 1
        redis.call('DEL', slots)
        fields = {}
    end
    for index = 1, #fields, 2 do
        local life, held, till = string.match(fields[index + 1], '^(%d+) (%d+) (%d+)$')
        life, held, till = number(life), number(held), number(till)
        if not (life and held and till) then
            torn = torn + 1
            redis.call('HDEL', slots, fields[index])
        elseif till <= now or till > now + 10 * lease then
            redis.call('HDEL', slots, fields[index])
        elseif fields[index] == node then
            is_fenced = life > generation
        else
            count = count + held
        end
    end
    return count, is_fenced
end

local theirs, is_fenced = others()
local taken = 0

-- Of what limits a demand the one that lasts longest.
local function verdict(tokens)
    if tpm > 0 and tokens > tpm then
        return 2, -1
    end
    local what, wait = 0, 0
    if rpm > 0 and sum[1] + 1 > rpm then
        what, wait = 1, leaves_in(sum[1] + 1 - rpm, 3)
    end
    if tpm > 0 and sum[2] + tokens > tpm then
        local period = leaves_in(sum[2] + tokens - tpm, 4)
        if period >= wait then
            what, wait = 2, period
        end
    end
    local is_slotless = theirs + in_use + taken >= concurrency or is_fenced
    if concurrency > 0 and is_slotless and SLOT_RETURNS_IN >= wait then
        what, wait = 3, SLOT_RETURNS_IN
    elseif concurrency > 0 and is_slotless and what == 0 then
        what, wait = 3, SLOT_RETURNS_IN
    end
    return what, wait
end

local function counted(tokens)
    return tpm > 0 and math.min(tokens, tpm) or 0
end

-- What may be set aside of a figure: a sixteenth of what is left beyond its last eighth, so that the
-- last of it is never in the hands of a node that does not use it.
local function spare(limit, used, wanted)
    if limit == 0 then
        return wanted
    end
    local beyond = limit - used - math.ceil(limit / 8)
    return math.max(0, math.min(wanted, math.floor(beyond / 16)))
end

local function save()
    if is_anew then
        redis.call('DEL', minute)
        for _, run in ipairs(runs) do
            run[5] = nil
        end
    elseif gone > 0 then
        redis.call('LTRIM', minute, gone, -1)
    end
    for index, run in ipairs(runs) do
        local item = table.concat({ digits(run[1]), digits(run[2]), digits(math.min(run[3], MOST)),
            digits(math.min(run[4], MOST)) }, ' ')
        if not run[5] then
            redis.call('RPUSH', minute, item)
        elseif run[5] ~= item then
            redis.call('LSET', minute, index - 1, item)
        end
    end
    if #runs > 0 then
        redis.call('PEXPIRE', minute, (MINUTE + 2 * AHEAD) / 1000)
    end
end

local position = 14
for _ = 1, tonumber(ARGV[14]) do
    replace(tonumber(ARGV[position + 1]), tonumber(ARGV[position + 2]), tonumber(ARGV[position + 3]),
        tonumber(ARGV[position + 4]), tonumber(ARGV[position + 5]))
    position = position + 5
end
if ARGV[9] ~= '0' or ARGV[10] ~= '0' then
    add(now, tonumber(ARGV[9]), tonumber(ARGV[10]))
end
local verdicts, at = {}, now
for index = position + 1, #ARGV do
    local tokens = tonumber(ARGV[index])
    local what, wait = verdict(tokens)
    if what == 0 then
        taken = taken + 1
        if rpm > 0 or tpm > 0 then
            at = add(now, 1, counted(tokens))
        end
    end
    verdicts[#verdicts + 1] = what
    verdicts[#verdicts + 1] = wait
end
local requests = spare(rpm, sum[1], tonumber(ARGV[11]))
local tokens = spare(tpm, sum[2], tonumber(ARGV[12]))
local aside_at = now
if requests == 0 or (tpm > 0 and tokens == 0) or (rpm == 0 and tpm == 0) then
    requests, tokens = 0, 0
else
    tokens = tpm > 0 and tokens or 0
    aside_at = add(now + math.min(tonumber(ARGV[13]), AHEAD), requests, tokens)
end
save()
local mine = 0
if concurrency > 0 and not is_fenced then
    mine = in_use + taken
    mine = mine + spare(concurrency, theirs + mine, keep)
    if mine == 0 then
        redis.call('HDEL', slots, node)
    else
        redis.call('HSET', slots, node, digits(generation) .. ' ' .. digits(mine) .. ' ' .. digits(now + lease))
        redis.call('PEXPIRE', slots, math.ceil(lease / 1000))
    end
end
local answer = { at, aside_at, requests, tokens, math.min(sum[1], MOST), math.min(sum[2], MOST),
    leaves_in(sum[1], 3), leaves_in(sum[2], 4), mine, theirs + mine, torn }
for _, value in ipairs(verdicts) do
    answer[#answer + 1] = value
end
return answer
