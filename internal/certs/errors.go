package certs

import "errors"

// errNoCertificate is reported for a PEM file that holds none.
var errNoCertificate = errors.New("there is no certificate in it")
