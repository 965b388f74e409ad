-- Leases that are held, told to a server that does not know them any more
-- (rule L1). ARGV from 5, for each lease: session, epoch, watermark, number of
-- predecessors, their ids, number of names, the names. The older of two
-- holders has lost. Returns those of the caller that are lost.
if not current() then
  return { 'INC' }
elseif not alive(boot) then
  return { 'DEAD' }
end
local lost = {}
local i = 5

local function take_list()
  local list = {}
  for k = 1, tonumber(ARGV[i]) do
    list[k] = ARGV[i + k]
  end
  i = i + #list + 1
  return list
end

local function register(session, epoch, watermark, preds, names)
  local known = load(session)
  if known then
    return known.boot == boot and known.epoch == epoch
  end
  if call('EXISTS', P .. 'tomb:' .. session) == 1 then
    return false
  end
  for _, name in ipairs(names) do
    local found = obstacle(name, session)
    while found do
      local rec = load(found)
      if rec.epoch > epoch then
        return false
      end
      drop(found)
      call('SADD', P .. 'lost:' .. rec.boot, found)
      call('PEXPIRE', P .. 'lost:' .. rec.boot, 60000)
      found = obstacle(name, session)
    end
  end
  if epoch > tonumber(call('GET', P .. 'epoch') or '0') then
    call('SET', P .. 'epoch', string.format('%.0f', epoch))
  end
  if watermark ~= '' then
    call('HSET', P .. 'w', session, watermark)
  end
  add(session, { epoch = epoch, boot = boot, names = names, preds = preds })
  return true
end

while i <= #ARGV do
  local session, epoch, watermark = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  i = i + 3
  local preds = take_list()
  local names = take_list()
  if not register(session, epoch, watermark, preds, names) then
    lost[#lost + 1] = session
  end
end
publish()
return { 'OK', lost }
