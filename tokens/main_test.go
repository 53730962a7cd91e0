package tokens_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives the tests: the authority starts one per job
// that is being served, and each has to end with its queue.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
