-- What gateways use of limits that hold for all of them.
-- ARGV: 5 for how long (ms) what a gateway wants counts, 6 for how long it has
-- a key open, 7 how many keys, then for each key: key, holders, leaving
-- (0, 1), and for each of two measures: rate, burst, used, told, wanted.
--
-- Keys:  c:K      hash   at (ms), a and b (what is left), and for each
--                        instance i:I -> at|used a|used b|wanted a|wanted b|holders
if not current() then
  return { 'INC' }
elseif not alive(boot) then
  return { 'DEAD' }
end

local fresh, kept = tonumber(ARGV[5]), tonumber(ARGV[6])
local answer = { 'OK' }

local function text(n)
  return string.format('%.17g', n)
end

local at = 8
for _ = 1, tonumber(ARGV[7]) do
  local key = P .. 'c:' .. ARGV[at]
  local holders, leaving = ARGV[at + 1], ARGV[at + 2] == '1'
  local fields = call('HGETALL', key)
  local state, others, mine = {}, {}, nil
  for i = 1, #fields, 2 do
    local name = string.match(fields[i], '^i:(.*)$')
    if not name then
      state[fields[i]] = tonumber(fields[i + 1])
    elseif name == boot then
      mine = fields[i + 1]
    else
      local told, wa, wb, h = string.match(fields[i + 1], '^(%d+)|[^|]*|[^|]*|([^|]*)|([^|]*)|(%d+)$')
      if not told or now - tonumber(told) > kept or not alive(name) then
        call('HDEL', key, fields[i])
      else
        if now - tonumber(told) > fresh then
          wa, wb = '0', '0'
        end
        others[#others + 1] = wa
        others[#others + 1] = wb
        others[#others + 1] = h
      end
    end
  end
  local before = {}
  if mine then
    before[1], before[2] = string.match(mine, '^%d+|([^|]*)|([^|]*)|')
  end
  local passed = math.max(0, now - (state.at or now)) / 1000
  local record, left, full = string.format('%.0f', now), {}, 0
  local wanted = ''
  for m = 1, 2 do
    local from = at + 3 + (m - 1) * 5
    local rate, burst, used, told = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2]), tonumber(ARGV[from + 3])
    local spent, known = used - told, tonumber(before[m] or '')
    if known and known > told and known <= used then
      spent = used - known -- an answer was lost
    end
    -- What was used was used while it filled, so it is taken first.
    local was = state[m == 1 and 'a' or 'b'] or burst
    left[m] = math.min(burst, math.max(-burst, was + rate * passed - math.max(spent, 0)))
    if rate > 0 then
      full = math.max(full, (burst - left[m]) / rate)
    end
    record = record .. '|' .. ARGV[from + 2]
    wanted = wanted .. '|' .. ARGV[from + 4]
  end
  call('HSET', key, 'at', string.format('%.0f', now), 'a', text(left[1]), 'b', text(left[2]))
  if leaving then
    call('HDEL', key, 'i:' .. boot)
  else
    call('HSET', key, 'i:' .. boot, record .. wanted .. '|' .. holders)
  end
  -- A key goes when nobody has it open and it is full again.
  if leaving and #others == 0 then
    call('PEXPIRE', key, math.ceil(full * 1000) + 1)
  else
    call('PEXPIRE', key, kept + math.ceil(full * 1000))
  end
  answer[#answer + 1] = text(left[1])
  answer[#answer + 1] = text(left[2])
  answer[#answer + 1] = others
  at = at + 13
end
return answer
