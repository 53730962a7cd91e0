package badgerstore

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// holdVariable makes the test binary a process that opens the directory named by it,
// raises one floor, says so and waits to be killed.
const holdVariable = "BADGERSTORE_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdVariable); dir != "" {
		holdUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

func holdUntilKilled(dir string) {
	s, err := Open(Options{Dir: dir})
	if err == nil {
		err = raiseInBackground(s)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("holding")
	select {}
}
