-- One round of a gateway on the messages of one address that workers compete
-- for (rules T1 to T3).
-- ARGV: 5 address, 6 serial, 7 enter (stay, begin, resume, reset), 8 listening,
-- 9 tail, 10 cursor, 11 left (reset: how many resets the caller knows of), 12 back, 13 how many are wanted, 14 how many free
-- ones of these, 15 copy (0, 1, 2: the own ones at least), 16 most open, 17 most copied, 18 to 22 how many of
-- each follow: done, free (position, attempts), own (position, attempts),
-- orphans (position, attempts, owners), candidates.
--
-- Keys:  tb       zset   address -> when a gateway with workers last came
--        tb:g:A   hash   floor, left and back (nobody listened between them),
--                        begun (the floor is a newcomer's tail), resets
--        tb:o:A   hash   position -> attempts:owner, of open claims
--        tb:f:A   zset   positions of those without owner
--        tb:m:A   hash   instance -> serial:listening
if not current() then
  return { 'INC' }
elseif not alive(boot) then
  return { 'DEAD' }
end

local topic, serial, enter = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local listening, tail = ARGV[8] == '1', tonumber(ARGV[9])
local G, O, F, M = P .. 'tb:g:' .. topic, P .. 'tb:o:' .. topic, P .. 'tb:f:' .. topic, P .. 'tb:m:' .. topic
local forever = 9007199254740991

local function text(n)
  return string.format('%.0f', n)
end

local function part(record)
  local attempts, owner = string.match(record, '^(%d+):(.*)$')
  return tonumber(attempts), owner
end

local function release(position, attempts)
  call('HSET', O, position, text(math.min(attempts, 255)) .. ':')
  call('ZADD', F, position, position)
end

local me = call('HGET', M, boot)
local last, listened = 0, false
if me then
  local s, l = string.match(me, '^(%d+):(%d)$')
  last, listened = tonumber(s), l == '1'
end
if serial <= last then
  return { 'LATE' }
end

local state = call('HMGET', G, 'floor', 'left', 'back', 'begun', 'resets')
local floor, left, back, begun = tonumber(state[1] or ''), tonumber(state[2] or ''), tonumber(state[3] or ''), tonumber(state[4] or '')
if not floor and (enter == 'stay' or enter == 'reset') then
  return { 'NEW' }
end

-- The other gateways. What the dead have left open is free (rule T2).
local others, died, peers = 0, false, {}
local members = call('HGETALL', M)
for i = 1, #members, 2 do
  local name = members[i]
  if name ~= boot then
    if not alive(name) then
      died = true
      call('HDEL', M, name)
    else
      peers[#peers + 1] = name
      if string.sub(members[i + 1], -2) == ':1' then
        others = others + 1
      end
    end
  end
end
if died then
  local open = call('HGETALL', O)
  for i = 1, #open, 2 do
    local attempts, owner = part(open[i + 1])
    if owner ~= '' and owner ~= boot and not alive(owner) then
      release(open[i], attempts + 1)
    end
  end
end

-- Where nobody listened: the stretches of two gateways have in common what is
-- in both.
local function within(from, to)
  if not left or not from then
    left, back = nil, nil
    return
  end
  left, back = math.max(left, from), math.min(back, to)
  if back <= left then
    left, back = nil, nil
  end
end

local resets = tonumber(state[5] or '') or 0
local wait = grace()
if enter == 'begin' then
  if not floor then
    floor, left, back = tail, nil, nil
    if wait > 0 then
      begun = tail
    end
  elseif left and back == forever then
    within(-1, tail)
  end
elseif enter == 'resume' then
  local cursor, from, to = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  if from < 0 then
    from = nil
  elseif to < 0 then
    to = forever
  end
  if not floor then
    floor, left, back = cursor, from, to
  elseif begun and wait > 0 then
    floor, left, back = cursor, from, to
    if left then
      within(-1, begun)
    end
    begun = nil
  else
    floor = math.max(floor, cursor)
    if wait > 0 then
      within(from, to)
    elseif left and back == forever and listening then
      within(-1, tail)
    end
  end
end
if enter == 'reset' and resets == tonumber(ARGV[11]) then
  resets = resets + 1
  floor, left, back = math.min(floor, tonumber(ARGV[10])), nil, nil
end
if listened and not listening and others == 0 then
  left, back = tail, forever -- the last has left
end

-- Finished and given back (rule T3), then what the gateways remember.
local at = 23
local function take(n, width)
  local from = at
  at = at + n * width
  return from, at - 1
end
local from, to = take(tonumber(ARGV[18]), 1)
for i = from, to do
  local record = call('HGET', O, ARGV[i])
  if record then
    local _, owner = part(record)
    if owner == boot or owner == '' then
      call('HDEL', O, ARGV[i])
      call('ZREM', F, ARGV[i])
    end
  end
end
-- Before what is given back: that is among it.
local freeFrom, freeTo = take(tonumber(ARGV[19]), 2)
from, to = take(tonumber(ARGV[20]), 2)
for i = from, to, 2 do
  call('HSETNX', O, ARGV[i], ARGV[i + 1] .. ':' .. boot)
end
for i = freeFrom, freeTo, 2 do
  local record = call('HGET', O, ARGV[i])
  if record then
    local _, owner = part(record)
    if owner == boot then
      release(ARGV[i], tonumber(ARGV[i + 1]))
    end
  end
end
from, to = take(tonumber(ARGV[21]), 3)
for i = from, to, 3 do
  local attempts, orphan = tonumber(ARGV[i + 1]), ARGV[i + 2] == ''
  for owner in string.gmatch(ARGV[i + 2], '[^,]+') do
    if not alive(owner) then
      orphan, attempts = true, attempts + 1
      break
    end
  end
  if orphan and tonumber(ARGV[i]) <= floor and call('HEXISTS', O, ARGV[i]) == 0 then
    release(ARGV[i], attempts)
  end
end

-- Claim: what was given back first, then the candidates above the floor.
local granted, taken = {}, {}
if wait == 0 and listening then
  local max = tonumber(ARGV[13])
  local free = math.min(max, tonumber(ARGV[14]))
  if free > 0 then
    for _, position in ipairs(call('ZRANGE', F, 0, free - 1)) do
      local attempts = part(call('HGET', O, position))
      call('HSET', O, position, text(attempts) .. ':' .. boot)
      call('ZREM', F, position)
      taken[#taken + 1] = position
      taken[#taken + 1] = text(attempts)
      max = max - 1
    end
  end
  max = math.min(max, tonumber(ARGV[16]) - call('HLEN', O))
  from, to = take(tonumber(ARGV[22]), 1)
  for i = from, to do
    local position = tonumber(ARGV[i])
    if position > floor then
      if left and position > left and position <= back then
        floor = position
      elseif #granted < max then
        call('HSET', O, ARGV[i], '0:' .. boot)
        granted[#granted + 1] = ARGV[i]
        floor = position
      else
        break
      end
    end
  end
end

if left and floor >= back then
  left, back = nil, nil
end
call('HSET', G, 'floor', text(floor), 'resets', text(resets))
for name, value in pairs({ left = left or false, back = back or false, begun = begun or false }) do
  if value then
    call('HSET', G, name, text(value))
  else
    call('HDEL', G, name)
  end
end
call('HSET', M, boot, text(serial) .. ':' .. (listening and '1' or '0'))
if listening or not call('ZSCORE', P .. 'tb', topic) then
  call('ZADD', P .. 'tb', text(now), topic)
end

local copied, copy = 0, {}
if ARGV[15] ~= '0' then
  if call('HLEN', O) <= tonumber(ARGV[17]) then
    copied, copy = 2, call('HGETALL', O)
  elseif ARGV[15] == '2' then
    copied = 1
    local open = call('HGETALL', O)
    for i = 1, #open, 2 do
      local _, owner = part(open[i + 1])
      if owner == boot then
        copy[#copy + 1] = open[i]
        copy[#copy + 1] = open[i + 1]
      end
    end
  end
end
return { 'OK', wait, text(floor), others, call('ZCARD', F), granted, taken, copied, copy, peers, resets }
