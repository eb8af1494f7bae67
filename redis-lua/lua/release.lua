-- Ends the lead of the caller.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the number of the lead.
-- Outcomes: done, led, fenced.

local number = tonumber(ARGV[6])

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local refused = refusal(page, number)
if not refused then
  turn(page)
  end_lead(page)
end
return answer(page, refused or 'done')
