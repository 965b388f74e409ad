-- Takeover (rules L4, L5). ARGV: 5 session, 6 resume, 7 the session that was
-- asked to stop, 8 its epoch, 9 whether it has handed over, 10 its watermark,
-- then names.
local session, resume, asked, names = ARGV[5], ARGV[6], ARGV[7], rest(11)
local no = refused(session)
if no then
  return no
end

local old, rec = acceptable(names[1], resume)
if not old or old ~= asked or string.format('%.0f', rec.epoch) ~= ARGV[8] then
  return { 'MOVED' }
end
-- What moves is not new; names beyond it are.
if grace() > 0 then
  for _, name in ipairs(names) do
    if not contains(rec.names, name) then
      return { 'WAIT', grace() }
    end
  end
end
local found = obstacles(names, old)
if found then
  publish()
  return { 'HELD', found }
end

local exact = rec.y and 1 or 0
local watermark = call('HGET', P .. 'w', old) or ''
if ARGV[9] == '1' then
  exact, watermark = 1, ARGV[10]
end
-- The predecessors' ids count until the new session is confirmed; the client
-- knows one of them, and that is the one that it has just shown.
local preds = {}
for _, id in ipairs(rec.preds) do
  if id ~= resume then
    preds[#preds + 1] = id
  end
end
if old ~= resume then
  preds[#preds + 1] = old
end
preds[#preds + 1] = resume
while #preds > 8 do
  table.remove(preds, 1)
end

for _, name in ipairs(rec.names) do
  call('HDEL', P .. 'l', name)
  if not contains(names, name) then
    call('ZREM', P .. 'names', name)
    change(name, '', rec.boot, rec.epoch)
  end
end
forget_aliases(old, rec)
call('HDEL', P .. 's', old)
call('HDEL', P .. 'w', old)
call('SREM', P .. 'own:' .. rec.boot, old)
if exact == 0 then
  call('SADD', P .. 'lost:' .. rec.boot, old)
  call('PEXPIRE', P .. 'lost:' .. rec.boot, 60000)
end
if watermark ~= '' then
  call('HSET', P .. 'w', session, watermark)
end
local epoch = next_epoch()
add(session, { epoch = epoch, boot = boot, names = names, preds = preds })
publish()
return { 'OK', epoch, watermark, exact, preds }
