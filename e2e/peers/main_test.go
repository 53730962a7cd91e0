//go:build linux

package peers_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// envPeers is none on a machine that can not have the peers; then nothing here is tested.
const envPeers = "FENCEPROXY_PEERS"

func TestMain(m *testing.M) {
	if os.Getenv(envPeers) == "none" {
		fmt.Printf("nothing was tested with real peers: %s is none\n", envPeers)
		return
	}
	code := m.Run()
	if err := daemon.Discard(); err != nil {
		fmt.Fprintf(os.Stderr, "discard the built program: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
