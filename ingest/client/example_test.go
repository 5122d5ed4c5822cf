package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest/client"
)

// Submits a job under an id of the producer's own. A refusal has a type.
func ExampleClient_Submit() {
	nc, err := nats.Connect(weirURL())
	check(err)
	defer nc.Close()
	ctx, cancel := patience()
	defer cancel()
	weir := client.New(nc, client.Options{})

	for _, order := range []string{"order-1", "order-2"} {
		receipt, err := weir.Submit(ctx, client.Submission{
			API: "tiny", Key: "customer-7", ID: order, Path: "/reports", Body: []byte(`{"order":"` + order + `"}`), Delay: time.Hour,
		})
		var refusal *client.Refusal
		switch {
		case errors.As(err, &refusal) && refusal.Code == client.Throttled:
			fmt.Println(order, "is refused with", refusal.Code.Status(), "and may come back later:", refusal.RetryAfter > 0)
		case errors.As(err, &refusal):
			fmt.Println(order, "is wrong:", refusal)
		case err != nil:
			fmt.Println("submit it again under the same id:", err)
		default:
			fmt.Println(receipt.Job, "is stored at position", receipt.Position)
		}
	}
	// Output:
	// order-1 is stored at position 1
	// order-2 is refused with 429 and may come back later: true
}

// Submits many jobs without waiting for each answer. At most UnderWay of them have no answer yet.
func ExampleClient_SubmitAsync() {
	nc, err := nats.Connect(weirURL())
	check(err)
	defer nc.Close()
	ctx, cancel := patience()
	defer cancel()
	weir := client.New(nc, client.Options{UnderWay: 64})
	defer weir.Close()

	var sent []*client.Pending
	for i := range 500 {
		p, err := weir.SubmitAsync(ctx, client.Submission{API: "credit-check", Key: fmt.Sprint("customer-", i%10), ID: fmt.Sprint("batch-", i)})
		check(err)
		sent = append(sent, p)
	}
	check(weir.Flush(ctx))
	taken := 0
	for _, p := range sent {
		if _, err := p.Wait(ctx); err == nil {
			taken++
		}
	}
	fmt.Println(taken, "jobs are stored")
	// Output: 500 jobs are stored
}

// Submits many jobs in few messages. Each job is accepted or refused by itself.
func ExampleClient_SubmitMany() {
	nc, err := nats.Connect(weirURL())
	check(err)
	defer nc.Close()
	ctx, cancel := patience()
	defer cancel()
	weir := client.New(nc, client.Options{})

	var jobs []client.Submission
	for i := range 100 {
		jobs = append(jobs, client.Submission{API: "credit-check", Key: fmt.Sprint("customer-", i%10), ID: fmt.Sprint("many-", i)})
	}
	jobs[7].Path = "no/path"
	answers, err := weir.SubmitMany(ctx, jobs)
	check(err) // otherwise submit jobs[len(answers):] again
	for i, a := range answers {
		if a.Err != nil {
			fmt.Println(jobs[i].ID, "is refused:", a.Err)
		}
	}
	fmt.Println(answers[99].Receipt.Job, "is stored under", answers[99].Receipt.Key)
	// Output:
	// many-7 is refused: header Weir-Path: a path begins with / and names no host
	// many-99 is stored under customer-9
}

// Submits a job and waits for its end.
func ExampleClient_Do() {
	nc, err := nats.Connect(weirURL())
	check(err)
	defer nc.Close()
	ctx, cancel := patience()
	defer cancel()

	end, err := client.New(nc, client.Options{}).Do(ctx, client.Submission{API: "credit-check", Key: "customer-8", ID: "order-3", Path: "/reports"})
	check(err)
	fmt.Println(end.Outcome, end.Status, string(end.Body))
	// Output: done 200 answer to /reports, trace
}

// A restarted process finds the ends of the jobs that it submitted before: by api, key and id.
func ExampleClient_Await() {
	ctx, cancel := patience()
	defer cancel()
	before, err := nats.Connect(weirURL())
	check(err)
	_, err = client.New(before, client.Options{}).Submit(ctx, client.Submission{API: "credit-check", Key: "customer-9", ID: "order-4"})
	check(err)
	before.Close()

	after, err := nats.Connect(weirURL())
	check(err)
	defer after.Close()
	end, err := client.New(after, client.Options{}).Await(ctx, "credit-check", "customer-9", "order-4", since())
	check(err)
	fmt.Println(end.Job, end.Outcome, end.Status)
	// Output: order-4 done 200
}

// Reads results under a name, so that none is missed. A result that was not handled is delivered again, also to the
// next process.
func ExampleClient_Follow() {
	nc, err := nats.Connect(weirURL())
	check(err)
	defer nc.Close()
	ctx, cancel := patience()
	defer cancel()
	weir := client.New(nc, client.Options{})
	for _, order := range []string{"order-5", "order-6"} {
		_, err := weir.Do(ctx, client.Submission{API: "credit-check", Key: "customer-10", ID: order})
		check(err)
	}

	billing := client.Results{Name: "billing", API: "credit-check", Key: "customer-10"}
	crashed := errors.New("the process crashed")
	err = weir.Follow(ctx, billing, func(_ context.Context, end client.End) error {
		fmt.Println("crashed with", end.Job)
		return crashed
	})
	fmt.Println(errors.Is(err, crashed))
	enough := errors.New("enough")
	err = weir.Follow(ctx, billing, func(_ context.Context, end client.End) error {
		fmt.Println("billed", end.Job)
		if end.Job == "order-6" {
			return enough
		}
		return nil
	})
	fmt.Println(errors.Is(err, enough))
	// Output:
	// crashed with order-5
	// true
	// billed order-5
	// billed order-6
	// true
}
