package fakeapi

import (
	"context"
	"net/http"
	"os"
)

// RefuseWhile returns a script that answers 401 and does no work while a file exists, as if the credentials were
// revoked. Otherwise script decides. With a nil script all requests succeed.
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
