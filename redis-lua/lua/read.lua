-- Reads one endpoint's page, and writes nothing.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua. Outcome: done.

-- Votes that are of another type would fail every cast: whoever reads is to know of it as well.
redis.call('HGET', KEYS[2], BY)

return answer(load_page(), 'done')
