package status

import (
	"context"
	"slices"
	"strings"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
)

// Bucket asks a key's owner about the key's bucket. The owner knows only its own calls of this api. So if the api has
// rates or in-flight limits of an account, Bucket also asks all replicas how much the apis of the account use. It
// blocks for some seconds at most.
func Bucket(ctx context.Context, c *connect.Connection, api, key string, limit int) (*admin.KeyShown, error) {
	shown, err := admin.Show(c, api, key, limit)
	if err != nil || !slices.ContainsFunc(shown.Limits, sumsUp) {
		return shown, err
	}
	replicas, err := admin.Status(c, 1, admin.MemberRoster(ctx, c, shown.Instance))
	if err != nil {
		return nil, err
	}
	all := &Status{}
	for i := range replicas {
		all.add(&replicas[i])
	}
	all.sumAccounts()
	for _, l := range all.api(api).Limits {
		same := func(have limitstate.LimitShown) bool { return have.Limit == l.Limit }
		if i := slices.IndexFunc(shown.Limits, same); i >= 0 && sumsUp(l) {
			shown.Limits[i].Used = l.Used
		}
	}
	return shown, nil
}

// sumsUp reports whether a limit belongs to an account and each replica counts its own use of it. Then the uses must be
// added up. The part of the limit's name before the slash is the account.
func sumsUp(l limitstate.LimitShown) bool {
	return strings.Contains(l.Limit, "/") && (l.Unit == limitstate.InCalls || l.PerMS > 0)
}
