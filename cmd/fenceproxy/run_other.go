//go:build !unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

const onLostLimit = 30 * time.Second

// run is not there: without process groups nothing could be stopped in time.
func (w *wrapping) run(context.Context) error {
	return w.fail(exitOwn, errors.New("only Unix has process groups, by which a program is stopped before its lease passes on"))
}

func leaseID(*leaseclient.Lease) string { return "" }
