-- Writes a step that the fleet took while the ledger was away: a further one of the incident that
-- stands, or a closing. It opens nothing.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the step, as in words.lua without `at`.
-- Outcomes: done, stale, fenced.

local step = step_argument(ARGV[6])

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local standing = page.step
if standing and not outranks(step, standing) then
  return answer(page, outranks(standing, step) and 'stale' or 'done')
end
local is_its = standing and is_open(standing) and standing.incident == step.incident
if is_open(step) and not is_its then
  return answer(page, 'stale')
end
take_step(page, step)
return answer(page, 'done')
