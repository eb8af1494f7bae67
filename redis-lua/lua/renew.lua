-- Lets the caller, which leads, lead for longer.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the number of the lead, 7 for how long from here on, at most: microseconds.
-- Outcomes: done, led, fenced.

local number, hold = tonumber(ARGV[6]), tonumber(ARGV[7])

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local refused = refusal(page, number)
if not refused then
  set_lead(page, number, hold)
end
return answer(page, refused or 'done')
