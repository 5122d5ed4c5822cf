package fakeapi_test

import (
	"fmt"
	"net/http"
	"time"

	"weir/cmd/internal/fakeapi"
)

// Starts an api that fails the second call of every key and charges 0.40 a call. Then it reads which calls arrived.
func Example() {
	script, err := fakeapi.Steps(fakeapi.Step{Path: "/charge/*", First: 2, Last: 2, Do: "status=503; retry-after=1"})
	if err != nil {
		panic(err)
	}
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 2}, Price: 400_000, Script: script})
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := http.Post(api.URL()+"/charge/vip-1", "application/json", nil)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %q\n", res.StatusCode, res.Header.Get("Retry-After"))
		_ = res.Body.Close()
	}
	if err := api.Close(); err != nil {
		panic(err)
	}
	arrivals := api.Arrivals("vip-1")
	invoice := fakeapi.Bills(arrivals)
	fmt.Println(invoice.Calls, "billed:", invoice.Charged, "millionths")
	fmt.Println("most in any hour:", fakeapi.FullestByCount(arrivals, time.Hour).Count)
	// Output:
	// 200 ""
	// 503 "1"
	// 200 ""
	// 2 billed: 800000 millionths
	// most in any hour: 3
}
