-- Writes an operator's order if it is newer than the one that stands: by its stamp, then its author.
--
-- KEYS, ARGV 1 to 5, time and what is returned: see page.lua.
-- ARGV: 6 the order, as in words.lua without `at`.
-- Outcomes: done, stale, fenced.

local text = text_of(NOW) .. ' ' .. ARGV[6]
local order = read_order(text)

local function is_newer(one, other)
  if one.stamp ~= other.stamp then
    return one.stamp > other.stamp
  end
  return is_after(one.author, other.author)
end

local page = load_page()
if is_of_earlier_life(page) then
  return answer(page, 'fenced')
end
heed(page)
local standing = page.order
if standing and not is_newer(order, standing) then
  return answer(page, is_newer(standing, order) and 'stale' or 'done')
end
turn(page)
page.order = order
put(page, 'order', text)
return answer(page, 'done')
