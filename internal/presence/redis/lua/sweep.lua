-- Forgets addresses whose workers are long gone, with what nobody will finish.
-- ARGV: 5 how long in ms they are kept, 6 how many messages are told at most.
if not current() then
  return { 'INC' }
end
local told = {}
for _, topic in ipairs(call('ZRANGEBYSCORE', P .. 'tb', '-inf', string.format('%.0f', now - tonumber(ARGV[5])), 'LIMIT', 0, 16)) do
  local O, F = P .. 'tb:o:' .. topic, P .. 'tb:f:' .. topic
  local open = call('HGETALL', O)
  local i = 1
  while i <= #open and #told < 3 * tonumber(ARGV[6]) do
    told[#told + 1] = topic
    told[#told + 1] = open[i]
    told[#told + 1] = string.match(open[i + 1], '^(%d+):') or '0'
    call('HDEL', O, open[i])
    call('ZREM', F, open[i])
    i = i + 2
  end
  if i > #open then
    call('UNLINK', P .. 'tb:g:' .. topic, O, F, P .. 'tb:m:' .. topic)
    call('ZREM', P .. 'tb', topic)
  end
end
return { 'OK', told }
