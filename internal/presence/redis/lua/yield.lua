-- The exact watermark of a session that has stopped (rule L4).
-- ARGV: 5 session, 6 epoch, 7 watermark.
if not current() then
  return { 'INC' }
end
local rec = load(ARGV[5])
if not rec or rec.boot ~= boot or string.format('%.0f', rec.epoch) ~= ARGV[6] then
  return { 'LOST' }
end
rec.y = true
save(ARGV[5], rec)
call('HSET', P .. 'w', ARGV[5], ARGV[7])
return { 'OK' }
