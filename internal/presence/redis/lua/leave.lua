-- The instance ends in order; it has given back its leases. What it may have
-- forgotten is cleared up like that of a dead one.
if not current() then
  return { 'INC' }
end
local label = call('HGET', P .. 'labels', boot)
if label and call('HGET', P .. 'inst', label) == boot then
  call('HDEL', P .. 'inst', label)
end
call('HDEL', P .. 'labels', boot)
call('ZREM', P .. 'boots', boot)
call('UNLINK', P .. 'lost:' .. boot)
if call('EXISTS', P .. 'own:' .. boot) == 1 then
  call('SADD', P .. 'dying', boot)
end
return { 'OK' }
