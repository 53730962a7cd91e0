//go:build !race

package badgerstore

const underRace = false
