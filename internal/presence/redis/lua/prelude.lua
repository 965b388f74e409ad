-- What all scripts share. KEYS[1] is the beginning of every key, with a hash
-- tag, so that all keys live in one slot. ARGV[1] is the time in ms, empty but
-- in tests; ARGV[2] the incarnation that the caller knows; ARGV[3] the caller's
-- instance; ARGV[4] the TTL in ms; the rest is the script's own.
--
-- Keys:  inc      hash   id, run (of the server), until (no new lease before)
--        epoch    number the last epoch
--        ver      number the last version of the directory
--        boots    zset   instance -> time of its last heartbeat
--        labels   hash   instance -> configured name
--        inst     hash   configured name -> instance
--        dying    set    instances that are dead and still have sessions here
--        l        hash   name -> session
--        names    zset   all names, in their order
--        s        hash   session -> record
--        w        hash   session -> watermark
--        alias    hash   predecessor's id -> session
--        own:I    set    sessions of instance I
--        lost:I   set    sessions that I has lost and does not know of yet
--        gone:S   string record of a session that has ended
--        tomb:S   string session S is not wanted any more
--        tb…      what workers compete for, see work.lua
--        c:K      what is used of limit K, see count.lua
-- Channels: dir (changes), all, to:I (notices).
local P = KEYS[1]
local incarnation, boot, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local call = redis.call

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

-- A server that was restarted may have loaded an old state from its disk, so
-- the process is part of the incarnation.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end

local function current()
  local known = call('HMGET', P .. 'inc', 'id', 'run')
  return known[1] and known[1] == incarnation and known[2] == run_id()
end

local function alive(instance)
  local at = call('ZSCORE', P .. 'boots', instance)
  return at and now - tonumber(at) < ttl
end

-- Milliseconds until leases may be handed out again (rule L1).
local function grace()
  return math.max(0, tonumber(call('HGET', P .. 'inc', 'until') or '0') - now)
end

-- The next epoch (rule L1).
local function next_epoch()
  local epoch = math.max(tonumber(call('GET', P .. 'epoch') or '0') + 1, now)
  call('SET', P .. 'epoch', string.format('%.0f', epoch))
  return epoch
end

local function load(session)
  local packed = call('HGET', P .. 's', session)
  return packed and cmsgpack.unpack(packed)
end

local function save(session, rec)
  call('HSET', P .. 's', session, cmsgpack.pack(rec))
end

-- Changes of the directory, told by publish: name, session, instance, epoch.
local changes = {}

local function net(s)
  s = tostring(s)
  return #s .. ':' .. s
end

local function change(name, session, instance, epoch)
  changes[#changes + 1] = net(name) .. net(session) .. net(instance) .. net(string.format('%.0f', epoch))
end

local function publish()
  if #changes > 0 then
    local ver = call('INCR', P .. 'ver')
    call('PUBLISH', P .. 'dir', net(incarnation) .. net(string.format('%.0f', ver)) .. table.concat(changes))
  end
end

local function forget_aliases(session, rec)
  for _, id in ipairs(rec.preds) do
    if call('HGET', P .. 'alias', id) == session then
      call('HDEL', P .. 'alias', id)
    end
  end
  rec.preds = {}
end

local function add(session, rec)
  save(session, rec)
  call('SADD', P .. 'own:' .. rec.boot, session)
  for _, name in ipairs(rec.names) do
    call('HSET', P .. 'l', name, session)
    call('ZADD', P .. 'names', 0, name)
    change(name, session, rec.boot, rec.epoch)
  end
  for _, id in ipairs(rec.preds) do
    call('HSET', P .. 'alias', id, session)
  end
end

local function drop(session)
  local rec = load(session)
  if not rec then
    return
  end
  for _, name in ipairs(rec.names) do
    if call('HGET', P .. 'l', name) == session then
      call('HDEL', P .. 'l', name)
      call('ZREM', P .. 'names', name)
      change(name, '', rec.boot, rec.epoch)
    end
  end
  forget_aliases(session, rec)
  rec.w = call('HGET', P .. 'w', session) or nil
  call('HDEL', P .. 's', session)
  call('HDEL', P .. 'w', session)
  call('SREM', P .. 'own:' .. rec.boot, session)
  call('SET', P .. 'gone:' .. session, cmsgpack.pack(rec), 'PX', 120000)
end

-- The live session other than except that stands in the way of name. The dead
-- ones are removed.
local function obstacle(name, except)
  local function stands(session)
    if not session or session == except then
      return nil
    end
    local rec = load(session)
    if rec and alive(rec.boot) then
      return session
    end
    drop(session)
    return nil
  end
  local found = stands(call('HGET', P .. 'l', name))
  if found then
    return found
  end
  local prefix = string.match(name, '^(.*::)%*$')
  local text = prefix or name
  for i = 2, #text do
    if string.sub(text, i - 1, i) == '::' then
      found = stands(call('HGET', P .. 'l', string.sub(text, 1, i) .. '*'))
      if found then
        return found
      end
    end
  end
  if prefix then
    local skip = 0
    while true do
      local hit = call('ZRANGEBYLEX', P .. 'names', '[' .. prefix, '(' .. string.sub(prefix, 1, -2) .. ';', 'LIMIT', skip, 1)[1]
      if not hit then
        break
      end
      local session = call('HGET', P .. 'l', hit)
      if session == except then
        skip = skip + 1
      else
        found = stands(session)
        if found then
          return found
        end
      end
    end
  end
  return nil
end

local function obstacles(names, except)
  for _, name in ipairs(names) do
    local found = obstacle(name, except)
    if found then
      return found
    end
  end
  return nil
end

local function contains(list, item)
  for _, x in ipairs(list) do
    if x == item then
      return true
    end
  end
  return false
end

local function rest(from)
  local list = {}
  for i = from, #ARGV do
    list[#list + 1] = ARGV[i]
  end
  return list
end

-- The record that a claim with this resume id may take over: that of the
-- holder of its first name, if resume is its session or a predecessor whose
-- successors are not confirmed (rule L5).
local function acceptable(name, resume)
  local session = resume ~= '' and call('HGET', P .. 'l', name)
  local rec = session and load(session)
  if rec and rec.names[1] == name and (session == resume or contains(rec.preds, resume)) then
    return session, rec
  end
  return nil
end

-- Whether a new session may be given anything.
local function refused(session)
  if not current() then
    return { 'INC' }
  elseif not alive(boot) then
    return { 'DEAD' }
  elseif call('EXISTS', P .. 'tomb:' .. session) == 1 then
    return { 'TOMB' }
  elseif call('HEXISTS', P .. 's', session) == 1 then
    return { 'USED' }
  end
  return nil
end
