// Package config is the configuration of fenceproxy: its schema, its defaults,
// how it is read, and every rule it is checked by.
//
// The comments on the fields are the reference manual. A key is written in
// YAML as in the field's tag, and in the environment as FENCEPROXY_ followed
// by its path in upper case joined by underscores: store.badger.dir is
// FENCEPROXY_STORE_BADGER_DIR, the upstream of the first route is
// FENCEPROXY_ROUTES_0_UPSTREAM. Lists are comma separated there. The
// environment wins over the file.
//
// Reading is strict and complete: an unknown key, a key given twice or a value
// of the wrong type is a fault with its file, line and column, and all faults
// are reported together rather than one per attempt.
//
// Nothing here does I/O but Load and ForUpstream, which read the configuration
// and the principals that it names. A Config is plain data: once loaded it may be read from many goroutines, and must not be changed
// while others read it.
package config
