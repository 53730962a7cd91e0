package overlay

import "path/filepath"

// Troubled returns the edits and additions that make the variant of the program whose store has trouble on request, as
// testdata/trouble.go of the black box tests says. root is the module's root.
func Troubled(root string) ([]Edit, []Addition) {
	const store, sweep = "tokens/badgerstore/store.go", "cmd/fenceproxy/sweep.go"
	return []Edit{
			{File: store, Old: "seams{free: freeBytes, sync: syncData, commit: commitAt}",
				New: "seams{free: troubledFree, sync: troubledSync, commit: troubledCommit}"},
			{File: store, Old: "o.Clock = systemClock{}", New: "o.Clock = troubledClock{}"},
			// Not trouble, only haste: nobody waits a minute for a sweep, or makes ten thousand keys so that one compacts.
			{File: sweep, Old: "sweepEvery = time.Minute", New: "sweepEvery = 100 * time.Millisecond"},
			{File: sweep, Old: "compactFrom = 10_000", New: "compactFrom = 0"},
		}, []Addition{{File: "tokens/badgerstore/trouble.go",
			Source: filepath.Join(root, "e2e", "testdata", "trouble.go")}}
}
