-- Gives leases back. ARGV from 5: pairs of session and epoch. An empty epoch
-- stands for any, and forbids the session for good: a claim for it may still be
-- on its way.
if not current() then
  return { 'INC' }
end
for i = 5, #ARGV, 2 do
  local session, epoch = ARGV[i], ARGV[i + 1]
  local rec = load(session)
  if rec and rec.boot == boot and (epoch == '' or string.format('%.0f', rec.epoch) == epoch) then
    drop(session)
  end
  if epoch == '' then
    call('SET', P .. 'tomb:' .. session, '', 'PX', 60000)
  end
end
publish()
return { 'OK' }
