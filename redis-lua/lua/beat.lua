-- Shows that this server answers, runs scripts and takes writes: a replica, a full or a loading one does not.
--
-- KEYS[1]  a key of its own, in any slot of this server
-- ARGV[1]  how long the key stands, in milliseconds
-- Returns  1
local key = KEYS[1]
local stands_ms = ARGV[1]

redis.call('SET', key, '1', 'PX', stands_ms)
return 1
