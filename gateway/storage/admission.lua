-- Admission in Redis: the machine of policy/admission.py, step by step; a property test compares the two.
--
-- KEYS[1] is the epoch's key and ends in "epoch"; every other name begins as it does, so that all lie in one slot.
-- ARGV[1] names the step, ARGV[2] is the time in epoch milliseconds, "0" for the server's own (tests alone set it).
-- Numbers stay below 2^53, up to where doubles are exact. Lua itself would write them with an exponent, and Redis takes
-- almost twice as long as `whole` does for those of commands. What was stored and is no such number is nobody's of ours:
-- see `displaced`.
--
-- A run of the script makes every function anew that it comes by: what lets a call in stands first and ends it, then
-- what settles one. Of the instructions of these two that was a quarter (callgrind).

local STEP, PREFIX = ARGV[1], string.sub(KEYS[1], 1, #KEYS[1] - 5)
local MINUTE, DAY = 60000, 86400000
local DONE = 3600000     -- as DONE_MS in policy/admission.py
local KEPT = '172800000' -- two days: an account that nobody draws on is loaded again after that; holds do not live so
                         -- long nor does anybody wait longer for the word that a guess is in place of
local AHEAD = 366        -- periods that the clock may have been put back by
local EXACT = 2 ^ 53
local SWEPT = 100        -- expired holds that one step settles
local WORDS = 4000       -- of one command: Lua's stack takes 8,000 (LUAI_MAXCSTACK)

local floor, max, min = math.floor, math.max, math.min
local call = redis.call

local function whole(number)
  return string.format(number < EXACT and number > -EXACT and '%d' or '%.0f', number)  -- '%d' takes half the time
end

local clock = call('TIME')
local now = tonumber(ARGV[2])
if now == 0 then
  now = tonumber(clock[1]) * 1000 + floor(tonumber(clock[2]) / 1000)
end

local function be_born(run)
  local id = whole(tonumber(clock[1]) * 1000000 + tonumber(clock[2]))
  call('DEL', KEYS[1])
  call('HSET', KEYS[1], 'id', id, 'born', now, 'run', run)
  call('PEXPIRE', KEYS[1], DAY)
  return id, now
end

-- What is no number of ours, or nil.
local function number_in(text)
  local found = text and string.find(text, '^%-?%d+$') and tonumber(text)
  return found and found > -EXACT and found < EXACT and found or nil
end

-- Gives what is at *key* another name, and has counting begun anew: holds are told again, accounts loaded again.
local function displaced(key)
  local stamp = clock[1] .. '.' .. clock[2]
  redis.pcall('RENAME', key, PREFIX .. 'aside:' .. stamp .. ':' .. string.sub(key, #PREFIX + 1))
  call('DEL', KEYS[1])
  return redis.error_reply('DISPLACED ' .. stamp .. ' ' .. key)
end

local known = call('HMGET', KEYS[1], 'id', 'born', 'run')
local epoch, born = known[1], number_in(known[2])
if epoch and not (number_in(epoch) and born) then return displaced(KEYS[1]) end
if not epoch then
  epoch, born = be_born(STEP == 'tick' and ARGV[3] or '')
end

-- The number *text* that is stored at *key*. Where it is none, the step ends: nothing that it did lasts, for the epoch
-- that it belongs to does not.
local strange = nil

local function number(key, text)
  local found = number_in(text)
  if not found then
    strange = key
    error('strange')
  end
  return found
end

local function flag(key, text)
  if text ~= '0' and text ~= '1' then number(key, nil) end
  return text == '1'
end

local function ended(is_done_with, reply)
  if is_done_with then return reply end
  if strange then return displaced(strange) end
  if type(reply) == 'table' then return reply end  -- of a command; a text before Redis 7.2
  return redis.error_reply(string.find(reply, '^%u+ ') and reply or 'ERR ' .. reply)
end

-- Accounts ---------------------------------------------------------------------------------------------------------

local function number_of(period)
  if period == 'total' then return 0 end
  local day = floor(now / DAY)
  if period == 'day' then return day end
  if period == 'week' then return floor((day + 3) / 7) end
  -- Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": civil_from_days, with years that begin in March
  local shifted = day + 719468
  local era = floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local month = floor((5 * of_year + 2) / 153) + 2
  return (year + era * 400) * 12 + month
end

local function stored(name)
  local key = PREFIX .. 'account:' .. name
  local f = call('HMGET', key, 'epoch', 'period', 'used', 'held', 'loaded', 'done')
  if f[1] ~= epoch then return nil, key end
  return {
    key = key, period = number(key, f[2]), used = number(key, f[3]), held = number(key, f[4]),
    loaded = flag(key, f[5]), done = flag(key, f[6]),
  }, key
end

local function tally(name, period)
  local current = number_of(period)
  local one, key = stored(name)
  if one and one.period > current + AHEAD then number(key, nil) end
  if one and one.period >= current then return one end
  return {key = key, period = current, used = 0, held = 0, loaded = one ~= nil and one.loaded, done = false}
end

local function write(one)
  call('HSET', one.key, 'epoch', epoch, 'period', whole(one.period), 'used', whole(one.used), 'held', whole(one.held),
    'loaded', one.loaded and '1' or '0', 'done', one.done and '1' or '0')
  call('PEXPIRE', one.key, KEPT)
end

-- Holds --------------------------------------------------------------------------------------------------------------
-- In lines: holder, opened ("again" where it was told again), reserved, the process that admitted the request; name,
-- period, is_money, amount of each account.
-- By epoch: a server that took over, or came back with its data, has holds whose accounts do not count them any more.

local function hold_key(request)
  return PREFIX .. 'hold:' .. epoch .. ':' .. request
end

local function hold(request, fields, hold_ms)
  local key = hold_key(request)
  call('SET', key, table.concat(fields, '\n'), 'PX', KEPT)
  call('ZADD', PREFIX .. 'open', whole(now + hold_ms), request)
  call('PEXPIRE', PREFIX .. 'open', KEPT)
end

-- Minutes ------------------------------------------------------------------------------------------------------------

local function current_rate(key, f, rpm, capacity, refill)
  if not f[1] then return {opened = now, used = 0, credits = capacity} end
  local opened, used, credits = number(key, f[1]), number(key, f[2]), number(key, f[3])
  if opened > now then return {opened = now, used = used, credits = min(credits, capacity)} end
  local idle = floor((now - opened) / MINUTE)
  if idle == 0 then return {opened = opened, used = used, credits = min(credits, capacity)} end
  local earned = min(max(0, rpm - used), refill) + (idle - 1) * min(rpm, refill)
  return {opened = now, used = 0, credits = min(capacity, credits + earned)}
end

local function current_tokens(key, f)
  local opened = f[4] and number(key, f[4])
  if not opened or now >= opened + MINUTE then return {opened = now, used = 0} end
  return {opened = min(opened, now), used = number(key, f[5])}
end

local function minute_of(holder)
  local key = PREFIX .. 'minute:' .. holder
  return key, call('HMGET', key, 'opened', 'used', 'credits', 'tokens_opened', 'tokens')
end

-- Admission ----------------------------------------------------------------------------------------------------------

local function admit()
  local lease_ms, hold_ms, rejoin_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local request, holder = ARGV[6], ARGV[7]
  local rpm, capacity, refill = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  local tpm, tokens_asked, inflight = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
  local need = {['1'] = tonumber(ARGV[14]), ['0'] = tonumber(ARGV[16])}
  local least = {['1'] = tonumber(ARGV[15]), ['0'] = tonumber(ARGV[17])}
  local looks = STEP == 'look'
  if #ARGV > 18 and born <= now and now < born + rejoin_ms then  -- born later: the clock was put back
    return {'wait', now, epoch, 0, 0, 0, 0, 0, born + rejoin_ms - now, 0, 0}
  end

  local rate, tokens, running, key, f = nil, nil, 0, nil, nil
  if rpm >= 0 or tpm >= 0 then key, f = minute_of(holder) end
  if rpm >= 0 then rate = current_rate(key, f, rpm, capacity, refill) end
  if tpm >= 0 then tokens = current_tokens(key, f) end
  local places = PREFIX .. 'running:' .. holder
  if inflight >= 0 then
    call('ZREMRANGEBYSCORE', places, '-inf', whole(now))
    running = call('ZCARD', places)
  end
  local accounts = {}
  for at = 19, #ARGV, 5 do
    local one = tally(ARGV[at], ARGV[at + 1])
    one.name, one.money, one.limit, one.hard = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4] == '1'
    accounts[#accounts + 1] = one
  end

  local function reply(step, retry_ms, money, weighted)
    local out = {
      step, now, epoch, rate and rate.used or 0, rate and rate.credits or 0, rate and rate.opened or 0,
      tokens and tokens.used or 0, running, retry_ms or 0, money or 0, weighted or 0,
    }
    for _, one in ipairs(accounts) do
      out[#out + 1] = one.used
      out[#out + 1] = one.held
      out[#out + 1] = one.loaded and 1 or 0
      out[#out + 1] = one.period
    end
    if tokens then out[#out + 1] = tokens.opened end
    return out
  end

  if looks then
    for _, one in ipairs(accounts) do
      if not one.loaded then return reply('load') end
    end
    return reply('admitted')
  end
  if rate and not (rate.used < rpm or (rate.credits > 0 and rate.used < 2 * rpm)) then
    return reply('rpm', rate.opened + MINUTE - now)
  end
  local reserved = 0
  if tokens then
    reserved = min(tokens_asked, tpm)
    if tokens.used + reserved > tpm then return reply('tpm', tokens.opened + MINUTE - now) end
  end
  if inflight >= 0 and running >= inflight then return reply('inflight') end
  local granted = {['1'] = need['1'], ['0'] = need['0']}
  for _, one in ipairs(accounts) do
    if one.loaded and one.hard and need[one.money] > 0 then
      local left = one.limit - one.used - one.held
      if left < need[one.money] then
        if left < max(1, least[one.money]) then return reply('account') end
        granted[one.money] = min(granted[one.money], left)
      end
    end
  end
  for _, one in ipairs(accounts) do
    if not one.loaded then return reply('load') end
  end

  if rate then
    if rate.used >= rpm then rate.credits = rate.credits - 1 end
    rate.used = rate.used + 1
    call('HSET', key, 'opened', whole(rate.opened), 'used', whole(rate.used), 'credits', whole(rate.credits))
  end
  if tokens then
    tokens.used = tokens.used + reserved
    call('HSET', key, 'tokens_opened', whole(tokens.opened), 'tokens', whole(tokens.used))
  end
  if rate or tokens then
    local kept = MINUTE
    local missing = rate and capacity - rate.credits or 0
    if missing > 0 then kept = kept + MINUTE * math.ceil(missing / max(1, min(rpm, refill))) end
    call('PEXPIRE', key, whole(kept))
  end
  if inflight >= 0 then
    call('ZADD', places, whole(now + lease_ms), request)
    call('PEXPIRE', places, ARGV[3])
    running = running + 1
  end
  if #accounts > 0 or reserved > 0 then
    local fields = {holder, tokens and whole(tokens.opened) or '0', whole(reserved), ARGV[18]}
    for _, one in ipairs(accounts) do
      local amount = one.hard and granted[one.money] or 0
      one.held = one.held + amount
      write(one)
      fields[#fields + 1] = one.name
      fields[#fields + 1] = whole(one.period)
      fields[#fields + 1] = one.money
      fields[#fields + 1] = whole(amount)
    end
    hold(request, fields, hold_ms)
  end
  return reply('admitted', 0, granted['1'], granted['0'])
end

if STEP == 'admit' or STEP == 'look' then return ended(pcall(admit)) end

-- What ends ----------------------------------------------------------------------------------------------------------

-- Ids by epoch and period, so that what is lost or over needs no cleaning up.
local function beside(one, what)
  return one.key .. ':' .. what .. ':' .. epoch .. ':' .. whole(one.period)
end

local function is_done(one, request)
  if not one.done then return false end
  local until_ms = call('HGET', beside(one, 'done'), request)
  return until_ms and number(beside(one, 'done'), until_ms) > now
end

-- A command for many at a time: two for each of 60,000 took longer than anybody waits for Redis.
local function put(key, requests, kept_ms)
  local until_ms, words = now + DONE, {}
  for at, request in ipairs(requests) do
    words[#words + 1], words[#words + 2] = request, until_ms
    if #words == WORDS or at == #requests then
      call('HSET', key, unpack(words))
      words = {}
    end
  end
  if #requests > 0 then call('PEXPIRE', key, kept_ms) end
end

local function note_done(one, requests)
  one.done = one.done or #requests > 0
  put(beside(one, 'done'), requests, DONE)
end

-- Whether it is booked: a load may have counted it.
local function book(one, request, amount)
  if not one.loaded then
    call('HSET', beside(one, 'pending'), request, amount)
    call('PEXPIRE', beside(one, 'pending'), KEPT)
  elseif is_done(one, request) then
    return false
  else
    one.used = one.used + amount
  end
  return true
end

local function lines_of(text)
  local fields = {}
  for field in string.gmatch(text .. '\n', '(.-)\n') do fields[#fields + 1] = field end
  return fields
end

-- Fields by four, name, period, is_money and amount, from *first* on.
local function are_accounts(key, fields, first)
  for at = first, #fields, 4 do
    number(key, fields[at + 1])
    flag(key, fields[at + 2])
    number(key, fields[at + 3])
  end
end

local function taken_hold(request)
  local key = hold_key(request)
  local text = call('GET', key)
  call('ZREM', PREFIX .. 'open', request)
  if not text then return nil end
  local fields = lines_of(text)
  number(key, fields[3])
  are_accounts(key, fields, 5)
  call('DEL', key)
  return fields
end

-- Guesses: what was booked for a request whose own process seemed to be dead, until that has a word to say.
-- In lines: until when it is known; name, period, is_money, amount of each account.
local function guess_key(request)
  return PREFIX .. 'guess:' .. epoch .. ':' .. request
end

local function guess_of(request)
  local key = guess_key(request)
  local text = call('GET', key)
  if not text then return {} end
  local guess = lines_of(text)
  local until_ms = number(key, guess[1])
  are_accounts(key, guess, 2)
  return until_ms > now and guess or {}
end

local function taken_guess(request)
  local guess = guess_of(request)
  if #guess > 0 then call('DEL', guess_key(request)) end
  return guess
end

local function guessed(guess, one, name)
  for at = 2, #guess, 4 do
    if guess[at] == name and tonumber(guess[at + 1]) == one.period then return tonumber(guess[at + 3]) end
  end
  return nil
end

-- *amount* in place of what was guessed, if anything was.
local function book_for(one, name, request, amount, guess)
  local before = guessed(guess, one, name)
  if before and one.loaded then
    one.used = max(0, one.used + amount - before)
    return true
  end
  return book(one, request, amount)
end

-- *lines*: name, period, is_money, amount of each account.
local function keep_guess(request, lines)
  if #lines > 0 then
    call('SET', guess_key(request), whole(now + 2 * DAY) .. '\n' .. table.concat(lines, '\n'), 'PX', KEPT)
  end
end

-- *fields* from *first* on are accounts by four: of a hold, or of an earlier guess.
local function note_guess(request, fields, first, spent)
  local lines = {}
  for at = first, #fields, 4 do
    lines[#lines + 1] = fields[at]
    lines[#lines + 1] = fields[at + 1]
    lines[#lines + 1] = fields[at + 2]
    lines[#lines + 1] = whole(spent[fields[at + 2]])
  end
  keep_guess(request, lines)
end

-- Books *spent*, or where there is none what was held, besides what was guessed before. Returns what was booked, by
-- four.
local function close_hold(request, fields, spent, guess)
  local booked = {}
  for at = 5, #fields, 4 do
    local one = stored(fields[at])
    if one and one.period == tonumber(fields[at + 1]) then
      local held = tonumber(fields[at + 3])
      one.held = one.held - held
      local amount = spent and spent[fields[at + 2]] or held + (guessed(guess, one, fields[at]) or 0)
      if book_for(one, fields[at], request, amount, guess) then
        for place = at, at + 2 do booked[#booked + 1] = fields[place] end
        booked[#booked + 1] = whole(amount)
      end
      -- a second settlement would not find it in its own epoch
      if fields[2] == 'again' and one.loaded then note_done(one, {request}) end
      write(one)
    end
  end
  return booked
end

-- ARGV: request, holder or "", tokens, nano-USD, weighted tokens, epoch of admission; name, period, its number and
-- is_money of each account. Without holder and accounts it is the word of another process.
local function settle()
  local request, holder = ARGV[3], ARGV[4]
  local guess, is_own = taken_guess(ARGV[3]), ARGV[4] ~= '' or #ARGV > 8
  local spent = {['1'] = tonumber(ARGV[6]), ['0'] = tonumber(ARGV[7])}
  if holder ~= '' then call('ZREM', PREFIX .. 'running:' .. holder, request) end
  local fields = taken_hold(request)
  if fields then
    if holder == '' then call('ZREM', PREFIX .. 'running:' .. fields[1], request) end
    local reserved = tonumber(fields[3])
    if reserved > 0 then
      local key = PREFIX .. 'minute:' .. fields[1]
      local f = call('HMGET', key, 'tokens_opened', 'tokens')
      if f[1] == fields[2] then
        call('HSET', key, 'tokens', whole(max(0, number(key, f[2]) - reserved + tonumber(ARGV[5]))))
      end
    end
    close_hold(request, fields, spent, guess)
    if not is_own then note_guess(request, fields, 5, spent) end
  elseif #guess > 0 then
    for at = 2, #guess, 4 do
      local one = stored(guess[at])
      if one and one.period == tonumber(guess[at + 1]) then
        book_for(one, guess[at], request, spent[guess[at + 2]], guess)
        if is_own and ARGV[8] ~= epoch and one.loaded then note_done(one, {request}) end
        write(one)
      end
    end
    if not is_own then note_guess(request, guess, 2, spent) end
  elseif ARGV[8] ~= epoch then
    for at = 9, #ARGV, 4 do
      local one = tally(ARGV[at], ARGV[at + 1])
      if one.period == tonumber(ARGV[at + 2]) then
        book(one, request, spent[ARGV[at + 3]])
        if one.loaded then note_done(one, {request}) end
        write(one)
      end
    end
  end
  return epoch
end

if STEP == 'settle' then return ended(pcall(settle)) end

-- ARGV: lease, hold; request and holder ("" where it has no place) of each. Returns those that have no hold.
local function renew()
  local lease_ms, hold_ms, missing = tonumber(ARGV[3]), tonumber(ARGV[4]), {}
  for at = 5, #ARGV, 2 do
    local request, holder = ARGV[at], ARGV[at + 1]
    if holder ~= '' then
      local places = PREFIX .. 'running:' .. holder
      call('ZADD', places, now + lease_ms, request)
      call('PEXPIRE', places, lease_ms)
    end
    if call('EXISTS', hold_key(request)) == 1 then
      call('ZADD', PREFIX .. 'open', now + hold_ms, request)
      call('PEXPIRE', hold_key(request), KEPT)
      call('PEXPIRE', PREFIX .. 'open', KEPT)
    else
      missing[#missing + 1] = request
    end
  end
  return missing
end

-- What was guessed of a request is booked already: that much is not held again.
-- ARGV: hold, request, holder, process; name, period, its number, is_money and amount of each account.
local function register()
  local request, fields = ARGV[4], {ARGV[5], 'again', '0', ARGV[6]}
  if call('EXISTS', hold_key(request)) == 1 then return epoch end
  local guess = guess_of(request)
  for at = 7, #ARGV, 5 do
    local one, amount = tally(ARGV[at], ARGV[at + 1]), tonumber(ARGV[at + 4])
    if one.period == tonumber(ARGV[at + 2]) then
      amount = max(0, amount - (guessed(guess, one, ARGV[at]) or 0))
      one.held = one.held + amount
      write(one)
    end
    fields[#fields + 1] = ARGV[at]
    fields[#fields + 1] = ARGV[at + 2]
    fields[#fields + 1] = ARGV[at + 3]
    fields[#fields + 1] = whole(amount)
  end
  hold(request, fields, tonumber(ARGV[3]))
  return epoch
end

-- A load of many ids comes in pieces, each far below the time that anybody waits for Redis: those of `note`, kept apart
-- by who loads, as another one may have read the ledger earlier; then `load`, with the rest.
-- ARGV: epoch, name, period, its number, the loader's word; ids that the ledger has.
local function note()
  local one = tally(ARGV[4], ARGV[5])
  if ARGV[3] == epoch and not one.loaded and one.period == tonumber(ARGV[6]) then
    put(beside(one, 'noted:' .. ARGV[7]), {unpack(ARGV, 8)}, MINUTE)
  end
  return epoch
end

-- ARGV: epoch, name, period, its number, the loader's word, how many it has noted, spent; ids that the ledger has.
local function load()
  local one, noted = tally(ARGV[4], ARGV[5]), tonumber(ARGV[8])
  if ARGV[3] ~= epoch or one.loaded or one.period ~= tonumber(ARGV[6]) then return epoch end
  local done, apart = beside(one, 'done'), beside(one, 'noted:' .. ARGV[7])
  if noted > 0 then
    if call('HLEN', apart) ~= noted then return epoch end  -- gone by now: it is to be loaded anew
    call('RENAME', apart, done)
    one.done = true
  end
  note_done(one, {unpack(ARGV, 10)})
  one.used, one.loaded = tonumber(ARGV[9]), true
  local pending, ids = call('HGETALL', beside(one, 'pending')), {}
  for at = 1, #pending, WORDS do  -- a command for many again
    local some = {}
    for place = at, min(at + WORDS, #pending) - 1, 2 do some[#some + 1] = pending[place] end
    local until_ms = one.done and call('HMGET', done, unpack(some)) or {}
    for nth, request in ipairs(some) do
      if number(done, until_ms[nth] or '0') <= now then
        one.used = one.used + number(beside(one, 'pending'), pending[at + 2 * nth - 1])
        ids[#ids + 1] = request
      end
    end
  end
  note_done(one, ids)
  call('PEXPIRE', done, DONE)
  call('DEL', beside(one, 'pending'))
  write(one)
  return epoch
end

-- ARGV: process. Returns the requests that it admitted and that hold something.
local function held()
  local found = {}
  for _, request in ipairs(call('ZRANGE', PREFIX .. 'open', 0, -1)) do
    local text = call('GET', hold_key(request))
    if text and lines_of(text)[4] == ARGV[3] then found[#found + 1] = request end
  end
  return found
end

local function pending()
  return call('HKEYS', beside(tally(ARGV[3], ARGV[4]), 'pending'))
end

-- ARGV: the server's run id, "" where it is not told. Settles, at what they held, holds that nobody has renewed:
-- guesses, for their processes may be alive.
local function tick()
  local run = ARGV[3]
  -- Refused where there is no memory, as an admission would be; only the first write of a script is.
  call('SET', PREFIX .. 'tick', now, 'PX', DAY)
  if run ~= '' and known[1] and known[3] ~= run then
    if known[3] == '' then
      call('HSET', KEYS[1], 'run', run)
    else
      epoch, born = be_born(run)
    end
  end
  call('PEXPIRE', KEYS[1], DAY)
  for _, request in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'open', '-inf', now, 'LIMIT', 0, SWEPT)) do
    local fields = taken_hold(request)
    if fields then keep_guess(request, close_hold(request, fields, nil, taken_guess(request))) end
  end
  return {epoch, born, now}
end

local steps = {
  renew = renew, register = register, note = note, load = load, pending = pending, tick = tick, held = held,
}
return ended(pcall(steps[STEP]))
