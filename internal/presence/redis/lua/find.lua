-- What is known of a session. ARGV: 5 session.
if not current() then
  return { 'INC' }
end
local session = ARGV[5]
local rec = load(session)
if not rec then
  local successor = call('HGET', P .. 'alias', session)
  rec = successor and load(successor)
  session = rec and successor or session
end
if rec then
  return { 'OK', session, rec.epoch, alive(rec.boot) and 0 or 1, rec.names }
end
local gone = call('GET', P .. 'gone:' .. session)
if gone then
  rec = cmsgpack.unpack(gone)
  return { 'OK', session, rec.epoch, 1, rec.names }
end
return { 'NONE' }
