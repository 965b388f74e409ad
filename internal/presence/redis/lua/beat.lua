-- The heartbeat (rules L1, L2).
-- ARGV: 5 a new incarnation's id, 6 the instance's configured name, 7 ms since
-- the caller's last confirmed heartbeat was sent (-1: there was none), then
-- sessions of lost:I that the caller knows of now.
local label, elapsed = ARGV[6], tonumber(ARGV[7])

local known = call('HMGET', P .. 'inc', 'id', 'run')
local run = run_id()
if not known[1] or known[2] ~= run then
  -- A new incarnation: nothing of the old state can be trusted. Holders
  -- register again; until they have had the time, nothing is handed out.
  local boots = call('ZRANGE', P .. 'boots', 0, -1)
  for _, dying in ipairs(call('SMEMBERS', P .. 'dying')) do
    boots[#boots + 1] = dying
  end
  for _, b in ipairs(boots) do
    call('UNLINK', P .. 'own:' .. b, P .. 'lost:' .. b)
  end
  for _, topic in ipairs(call('ZRANGE', P .. 'tb', 0, -1)) do
    call('UNLINK', P .. 'tb:g:' .. topic, P .. 'tb:o:' .. topic, P .. 'tb:f:' .. topic, P .. 'tb:m:' .. topic)
  end
  for _, key in ipairs({ 'tb', 'boots', 'labels', 'inst', 'dying', 'l', 'names', 's', 'w', 'alias', 'ver' }) do
    call('UNLINK', P .. key)
  end
  call('HSET', P .. 'inc', 'id', ARGV[5], 'run', run, 'until', string.format('%.0f', now + ttl))
  known[1] = ARGV[5]
end
incarnation = known[1]

local other = call('HGET', P .. 'inst', label)
if other and other ~= boot and alive(other) then
  return { 'DUP', call('ZSCORE', P .. 'boots', other) }
end

-- A step of the server's clock must not kill those who live, nor keep the dead
-- alive: what the caller's clock says about the time between two of its
-- heartbeats shows it. A heartbeat that was a while on its way looks like a
-- small step forward; taking it for one only lets others live as much longer.
local at = tonumber(call('ZSCORE', P .. 'boots', boot) or '-1')
if at >= 0 and elapsed >= 0 then
  local step = 0
  if now - at - elapsed > 1500 then
    step = now - at - elapsed
  elseif now - at < -1000 then
    step = now - at
  end
  if step ~= 0 then
    local all = call('ZRANGE', P .. 'boots', 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      call('ZADD', P .. 'boots', string.format('%.0f', tonumber(all[i + 1]) + step), all[i])
    end
    local till = tonumber(call('HGET', P .. 'inc', 'until'))
    call('HSET', P .. 'inc', 'until', string.format('%.0f', math.min(till + step, now + ttl)))
  end
end

local was_alive = alive(boot) and 1 or 0
call('ZADD', P .. 'boots', string.format('%.0f', now), boot)
call('HSET', P .. 'labels', boot, label)
call('HSET', P .. 'inst', label, boot)
call('SREM', P .. 'dying', boot)

-- Clear up after the dead, a little at a time.
for _, dead in ipairs(call('ZRANGEBYSCORE', P .. 'boots', '-inf', string.format('%.0f', now - ttl), 'LIMIT', 0, 8)) do
  local name = call('HGET', P .. 'labels', dead)
  if name and call('HGET', P .. 'inst', name) == dead then
    call('HDEL', P .. 'inst', name)
  end
  call('HDEL', P .. 'labels', dead)
  call('ZREM', P .. 'boots', dead)
  call('SADD', P .. 'dying', dead)
end
local dying = call('SRANDMEMBER', P .. 'dying')
if dying then
  for _, session in ipairs(call('SRANDMEMBER', P .. 'own:' .. dying, 200)) do
    drop(session)
    call('SREM', P .. 'own:' .. dying, session)
  end
  if call('EXISTS', P .. 'own:' .. dying) == 0 then
    call('SREM', P .. 'dying', dying)
    call('UNLINK', P .. 'lost:' .. dying)
  end
end
publish()

local seen = rest(8)
for _, session in ipairs(seen) do
  call('SREM', P .. 'lost:' .. boot, session)
end

local peers = {}
for _, b in ipairs(call('ZRANGE', P .. 'boots', 0, -1)) do
  peers[#peers + 1] = b
  peers[#peers + 1] = call('HGET', P .. 'labels', b) or ''
end
return {
  'OK', incarnation, was_alive, grace(), tonumber(call('GET', P .. 'ver') or '0'),
  peers, call('SRANDMEMBER', P .. 'lost:' .. boot, 500),
}
