// Package certs reads the certificate files that a configuration names, says what is
// wrong with them, and lets a listener go over to new ones without losing a connection.
package certs
