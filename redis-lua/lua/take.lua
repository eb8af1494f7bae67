-- Gives the lead to the caller, under a new number also if it has it, unless another leads.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 for how long, at most: microseconds.
-- Outcomes: done, led, fenced.

local hold = tonumber(ARGV[6])

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
if page.leading and page.leading.holder ~= BY then
  return answer(page, 'led')
end
turn(page)
page.lead = raised(page.lead, 1)
set_lead(page, page.lead, hold)
return answer(page, 'done')
