// Package control serves the control listener: the lease API for workers, the operator's
// API, health and metrics. It translates between HTTP and [tokens.Authority] and decides
// nothing itself.
//
// Every refusal is a problem that names the field or the state, its value and the way
// out. Lease ids and claim ids are answered only to whoever made the claim, and never
// logged.
package control
