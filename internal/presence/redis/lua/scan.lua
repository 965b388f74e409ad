-- A piece of the directory in the order of names, as it is at one version
-- (rule C7). ARGV: 5 the last name that the caller has, or empty; 6 how many.
if not current() then
  return { 'INC' }
end
local list = call('ZRANGEBYLEX', P .. 'names', ARGV[5] == '' and '-' or '(' .. ARGV[5], '+', 'LIMIT', 0, ARGV[6])
local out = {}
local records = {} -- a record may have many names, and is long then
for _, name in ipairs(list) do
  local session = call('HGET', P .. 'l', name)
  if session and records[session] == nil then
    records[session] = load(session)
  end
  local rec = session and records[session]
  if rec then
    out[#out + 1] = name
    out[#out + 1] = session
    out[#out + 1] = rec.boot
    out[#out + 1] = string.format('%.0f', rec.epoch)
  end
end
return { 'OK', tonumber(call('GET', P .. 'ver') or '0'), #list == tonumber(ARGV[6]) and list[#list] or '', out }
