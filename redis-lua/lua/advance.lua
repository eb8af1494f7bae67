-- Writes the next step of the incident that stands, by who leads, on the version that it knows: one
-- that outranks what stands, or a probe in place of one whose time is over or that is the steward's own.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the number of the lead, 7 the step, as in words.lua without `at`.
-- Outcomes: done, stale, led, fenced.

local number, step = tonumber(ARGV[6]), step_argument(ARGV[7])

local function is_next(standing)
  if step.incident ~= standing.incident then
    return false
  end
  if outranks(step, standing) then
    return true
  end
  local is_over = left(standing.remaining, standing.at) == 0
  return step.stage == 'probing' and not outranks(standing, step)
    and (standing.steward == step.steward or is_over)
end

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local refused = refusal(page, number)
if refused then
  return answer(page, refused)
end
local standing = page.step
if SEEN.version ~= page.version or not standing or not is_open(standing) or not is_next(standing) then
  return answer(page, 'stale')
end
take_step(page, step)
return answer(page, 'done')
