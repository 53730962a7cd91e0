package auth

// Role is a set of things that a principal may do. Roles are combined with |.
type Role uint8

// The roles.
const (
	// Worker claims, renews, completes and releases, writes as the holder of a
	// certificate, and reads its jobs.
	Worker Role = 1 << iota
	// Issuer raises floors.
	Issuer
	// Operator may do everything.
	Operator
	// Viewer reads.
	Viewer
)

// RoleNamed returns the role with the name that the auth file has for it.
func RoleNamed(name string) (Role, bool) {
	switch name {
	case "worker":
		return Worker, true
	case "issuer":
		return Issuer, true
	case "operator":
		return Operator, true
	case "viewer":
		return Viewer, true
	}
	return 0, false
}

// RoleNames lists the names of all roles.
func RoleNames() []string { return []string{"worker", "issuer", "operator", "viewer"} }
