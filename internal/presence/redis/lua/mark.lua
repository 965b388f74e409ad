-- Watermarks with the renewal (rule L4), of leases that are still current and
-- have not handed over. ARGV from 5: session, epoch, watermark.
if not current() then
  return { 'INC' }
end
for i = 5, #ARGV, 3 do
  local rec = load(ARGV[i])
  if rec and rec.boot == boot and not rec.y and string.format('%.0f', rec.epoch) == ARGV[i + 1] then
    call('HSET', P .. 'w', ARGV[i], ARGV[i + 2])
  end
end
return { 'OK' }
