-- What the scripts ask the server for: its clock, and which run of a server this is. It stands before
-- every other part, by itself, so that a test can put a clock of its own in its place.

-- The server's clock in microseconds since 1970. It may be set back.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Another text in each run of the server and after each failover; nil where the server does not say.
local function run_of_server()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then
    return nil
  end
  return info:match('master_replid:(%x+)')
end
