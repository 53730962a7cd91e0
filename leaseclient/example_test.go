package leaseclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

// do sends one write through the proxy. Every example uses it: the lease's transport does the rest.
func do(ctx context.Context, l *leaseclient.Lease, key, url string) error {
	req, err := http.NewRequestWithContext(leaseclient.WithKey(ctx, key), http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: l.Transport(nil)}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// A queue worker: one job per message, so that a message which is delivered twice is worked on once.
func ExampleClient_Run() {
	proxy := newStack()
	defer proxy.stop()
	client, err := leaseclient.New(leaseclient.Config{Endpoint: proxy.control})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for _, message := range []string{"order-1", "order-2", "order-1"} {
		err := client.Run(context.Background(), message, func(ctx context.Context, l *leaseclient.Lease) error {
			return do(ctx, l, "charge", proxy.data+"/charge/"+message)
		}, leaseclient.CompleteOnSuccess())
		switch {
		case err == nil:
			fmt.Println(message, "done")
		case errors.Is(err, leaseclient.ErrCompleted):
			fmt.Println(message, "was done before: acknowledge it")
		case errors.Is(err, leaseclient.ErrHeld), errors.Is(err, leaseclient.ErrLost):
			fmt.Println(message, "is another worker's now: leave it alone")
		default:
			fmt.Println(message, "failed, to be delivered again:", err)
		}
	}
	fmt.Println(proxy.done())
	// Output:
	// order-1 done
	// order-2 done
	// order-1 was done before: acknowledge it
	// [/charge/order-1 /charge/order-2]
}

// A cron job that starts on several machines: the job id is the same on all of them for one run, and another for the next.
func ExampleClient_Run_cron() {
	proxy := newStack()
	defer proxy.stop()
	due := time.Date(2024, 6, 1, 3, 0, 0, 0, time.UTC) // from the schedule, not from the clock of the machine
	job := "report/" + due.Format("2006-01-02T15:04Z")

	for _, machine := range []string{"a", "b"} {
		client, err := leaseclient.New(leaseclient.Config{Endpoint: proxy.control, Owner: machine})
		if err != nil {
			log.Fatal(err)
		}
		err = client.Run(context.Background(), job, func(ctx context.Context, l *leaseclient.Lease) error {
			return do(ctx, l, "send", proxy.data+"/report")
		}, leaseclient.CompleteOnSuccess())
		fmt.Println(machine, err)
		if err := client.Close(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(proxy.done())
	// Output:
	// a <nil>
	// b run job: claim lease: job "report/2024-06-01T03:00Z" is completed
	// [/report]
}

// A loop over steps: each has a key that means the same in every attempt, so the loop just starts over.
func ExampleWithKey() {
	proxy := newStack()
	defer proxy.stop()
	client, err := leaseclient.New(leaseclient.Config{Endpoint: proxy.control})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	steps := []string{"reserve", "charge", "ship"}
	attempt := func(power int) error {
		return client.Run(context.Background(), "order-7", func(ctx context.Context, l *leaseclient.Lease) error {
			for i, step := range steps {
				if i == power {
					return fmt.Errorf("generation %d crashed before it could %s", l.Generation(), step)
				}
				if err := do(ctx, l, step, proxy.data+"/"+step); err != nil {
					return err
				}
			}
			return l.Complete(ctx, map[string]int{"steps": len(steps)})
		})
	}
	fmt.Println(attempt(2))
	fmt.Println(attempt(len(steps)))
	fmt.Println(proxy.done())
	// Output:
	// generation 1 crashed before it could ship
	// <nil>
	// [/reserve /charge /ship]
}

// A take-over: the new holder learns what the old one did, and what nobody knows.
func ExampleLease_Predecessor() {
	proxy := newStack()
	defer proxy.stop()
	ctx := context.Background()
	old, err := leaseclient.New(leaseclient.Config{Endpoint: proxy.control, Owner: "old"})
	if err != nil {
		log.Fatal(err)
	}
	defer old.Close()
	paused, err := old.Claim(ctx, "order-9")
	if err != nil {
		log.Fatal(err)
	}
	_ = do(ctx, paused, "reserve", proxy.data+"/reserve")
	_ = do(ctx, paused, "charge", proxy.data+"/broken") // the answer of this one was lost

	proxy.pass(time.Minute) // and then the worker was paused beyond its lease

	client, err := leaseclient.New(leaseclient.Config{Endpoint: proxy.control, Owner: "new"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Run(ctx, "order-9", func(ctx context.Context, l *leaseclient.Lease) error {
		p := l.Predecessor()
		fmt.Printf("generation %d was %s: %d applied, %d unknown\n", p.Generation, p.Ended, p.Applied, p.Unknown)
		for _, w := range p.Unresolved {
			fmt.Printf("look at the upstream before repeating %s %s (key %s)\n", w.Method, w.Path, w.Key)
		}
		// Repeating a step that is known to be applied does nothing.
		return do(ctx, l, "reserve", proxy.data+"/reserve")
	}, leaseclient.WithSettle(10*time.Second))
	fmt.Println(err)

	err = do(ctx, paused, "ship", proxy.data+"/ship")
	fmt.Println("the old worker is stopped:", errors.Is(err, leaseclient.ErrLost) || paused.Err() != nil)
	fmt.Println(proxy.done())
	// Output:
	// generation 1 was superseded: 1 applied, 1 unknown
	// look at the upstream before repeating POST /broken (key charge)
	// <nil>
	// the old worker is stopped: true
	// [/reserve /broken]
}
