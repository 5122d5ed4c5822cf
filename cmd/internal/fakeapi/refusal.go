package fakeapi

import (
	"context"
	"net/http"
	"os"
)

// RefuseWhile answers 401 to each request, and does nothing of what it asks, as long as a file is there: the credentials were
// revoked. Otherwise script decides; nil has all succeed.
func RefuseWhile(file string, script Script) Script {
	if script == nil {
		script = succeed
	}
	return func(ctx context.Context, r *Request) Behaviour {
		if _, err := os.Stat(file); err == nil {
			return Behaviour{Status: http.StatusUnauthorized}
		}
		return script(ctx, r)
	}
}
