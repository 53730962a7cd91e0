// Package mutants breaks one promise of the program at a time, in a build overlay and never in the tree, and demands that a
// named test of the suite fails. A mutant that survives is a hole in the suite.
package mutants
