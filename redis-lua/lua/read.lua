-- Reads one endpoint's page, and writes nothing.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua. Outcome: done.

return answer(load_page(), 'done')
