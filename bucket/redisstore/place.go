package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"weir/bucket"
)

// The state in which an api is counted, and the configuration by which it is counted.
//
// An api that joins, leaves or changes an account is counted in another state from then on. Replicas follow such a
// change at different times. So the state that the api has left refuses it (Move). The state of an account also refuses
// rules of an earlier configuration, if these differ in the account's limits or apis. A replica whose request is
// refused makes no calls of the api until it follows the change. Calls that it has made still end.
//
// The state of an account has the greatest bucket.Rules.Version of a request (gen) and the bucket.Rules.AccountSign of
// that request (sign). For each api that has left, it has the Version of the rules by which the api left (NAME|moved).
// If an api has left its own state, that state's epoch says so. The script does not check this epoch: Store.learn does.
//
// An account also grants nothing before each of its apis has come, because an api that is still outside may be called
// without the account's limits. Move is called before the first request of the api in the new state. So an api that has
// come is called nowhere else.

// ErrBehind says that Redis counts the limits by a later configuration than the rules of this Store.
var ErrBehind error = &bucket.Refusal{
	Err: errors.New("redis counts the limits by a newer configuration than this replica has: its calls wait until it applies that configuration"),
	Fix: "if it does not, `weir status` says why it refused the configuration; or apply a corrected one",
}

// ErrAwaits says that an api of the account is not counted there yet.
var ErrAwaits = errors.New("calls wait until all apis of the account are counted in it")

// awaits returns ErrAwaits with the api that has not come.
func awaits(api string) error {
	return &bucket.Refusal{
		Err: fmt.Errorf("%w: api %s has not come yet", ErrAwaits, api),
		Fix: "it comes when a replica that dispatches has followed the configuration; if none does, look at its log",
	}
}

// errAgain says that a request must be repeated.
var errAgain = errors.New("repeat the request")

// accountPrefix begins the keys of an account.
func accountPrefix(account string) string { return "{weir:account/" + account + "}:" }

func ownPrefix(api string) string { return "{weir:" + api + "}:" }

// Move tells the state that an api has left to refuse the api from then on, except under rules of a later Version than
// version. from is the account that the api has left, or "" if the api had a state of its own. epoch is the last known
// epoch of the api's own state. Move fails with ErrBehind if the account is counted by a later configuration already.
func Move(ctx context.Context, c Client, api, from, epoch string, version int64) error {
	key, of := ownPrefix(api)+"state", ""
	if from != "" {
		key, of = accountPrefix(from)+"state", api+"|"
	}
	behind, err := moveOut.Run(ctx, c, []string{key}, of, version, born(epoch)).Bool()
	switch {
	case err != nil:
		return fmt.Errorf("leave the former limits in redis: %w", err)
	case behind:
		return ErrBehind
	}
	return nil
}

var moveOut = redis.NewScript(`
local key, of, version, known = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local function dec(x) return string.format('%.0f', x) end
if of == '' then
  local epoch = redis.call('HGET', key, 'epoch') or ''
  local moved = tonumber(string.match(epoch, '%.moved%.(%d+)$') or -1)
  if moved >= version then return 0 end
  local time = redis.call('TIME')
  local born = tonumber(string.match(epoch, '^(%d+)%.') or 0)
  born = math.max(born, known, time[1] * 1000000 + time[2]) + 1
  redis.call('HSET', key, 'epoch', dec(born) .. '.moved.' .. dec(version))
  redis.call('HSETNX', key, 'asked', '0') -- a state that was never used has none
  return 0
end
if tonumber(redis.call('HGET', key, 'gen') or 0) > version then return 1 end
if tonumber(redis.call('HGET', key, of .. 'moved') or -1) < version then
  redis.call('HSET', key, of .. 'moved', dec(version))
  redis.call('HDEL', key, of .. 'asked')
end
return 0
`)

// born returns when an epoch began, in microseconds since 1970; 0 if the epoch does not say.
func born(epoch string) int64 {
	at, _, _ := strings.Cut(epoch, ".")
	n, _ := strconv.ParseInt(at, 10, 64) // 0 if it is no number
	return n
}

// comeBackLocked handles an epoch which says that the api has left its own state. If the Store has later rules than
// those by which the api left, it begins a new state: the request is repeated as if the state were lost. Otherwise the
// error is ErrBehind.
func (s *Store) comeBackLocked(epoch string) error {
	_, version, _ := strings.Cut(epoch, leftEpoch)
	if at, err := strconv.ParseInt(version, 10, 64); err != nil || s.version.Load() <= at {
		return ErrBehind
	}
	s.epoch, s.seen = strconv.FormatInt(born(epoch)+1, 10)+".back", 0
	return errAgain
}

// leftEpoch is a part of the epoch of a state that its api has left. The version by which the api left follows it.
const leftEpoch = ".moved."

// Confirm notes that a later configuration has the same rules.
func (s *Store) Confirm(version int64) { s.version.Store(max(s.version.Load(), version)) }

// takeRulesLocked puts validated rules in force.
func (s *Store) takeRulesLocked(rules bucket.Rules) {
	s.rules, s.sign = rules, rules.AccountSign()
	s.version.Store(rules.Version)
}
