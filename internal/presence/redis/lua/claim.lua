-- A new lease: all names or none. ARGV: 5 session, 6 resume, then names.
local session, resume, names = ARGV[5], ARGV[6], rest(7)
local no = refused(session)
if no then
  return no
end

local old, rec = acceptable(names[1], resume)
if old then
  -- The caller asks the holder's gateway, if that lives, and takes it; but not
  -- in vain.
  local found = obstacles(names, old)
  publish()
  if found then
    return { 'HELD', found }
  end
  return { 'TAKE', old, rec.epoch, rec.boot, alive(rec.boot) and 1 or 0 }
end
if grace() > 0 then
  return { 'WAIT', grace() }
end
local found = obstacles(names, nil)
if found then
  publish()
  return { 'HELD', found }
end

local preds, watermark, resumed = {}, '', 0
local gone = resume ~= '' and call('GET', P .. 'gone:' .. resume)
if gone then
  gone = cmsgpack.unpack(gone)
  if gone.names[1] == names[1] then
    resumed, preds, watermark = 1, { resume }, gone.w or ''
    call('DEL', P .. 'gone:' .. resume)
    if watermark ~= '' then
      call('HSET', P .. 'w', session, watermark)
    end
  end
end
local epoch = next_epoch()
add(session, { epoch = epoch, boot = boot, names = names, preds = preds })
publish()
return { 'OK', epoch, resumed, watermark, preds }
