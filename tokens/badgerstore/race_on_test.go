//go:build race

package badgerstore

// underRace tells that each step costs ten times as much.
const underRace = true
