package auth

import "errors"

// ErrTwice tells that two principals have the same name or credential.
var ErrTwice = errors.New("two principals have it")
