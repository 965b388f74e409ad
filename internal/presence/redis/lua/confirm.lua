-- The first frame of resumed sessions has come (rule L5).
-- ARGV from 5: pairs of session and epoch.
if not current() then
  return { 'INC' }
end
for i = 5, #ARGV, 2 do
  local rec = load(ARGV[i])
  if rec and rec.boot == boot and string.format('%.0f', rec.epoch) == ARGV[i + 1] then
    forget_aliases(ARGV[i], rec)
    save(ARGV[i], rec)
  end
end
return { 'OK' }
