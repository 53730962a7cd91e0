package config

import "time"

// Config is the whole configuration. Start from Default, Load, Parse or
// ForUpstream: the zero value does not validate.
type Config struct {
	// Listen is the address of the data listener, host:port, where writers
	// send. An empty host is every interface, port 0 is any free port.
	// Default 127.0.0.1:8080.
	Listen string `yaml:"listen"`

	// TLS is how the data listener speaks TLS. Default: plain HTTP.
	TLS ServerTLS `yaml:"tls"`

	// Control is the listener of the lease API, health, metrics and the
	// operator's page.
	Control Control `yaml:"control"`

	// Auth says who may do what.
	Auth Auth `yaml:"auth"`

	// Principals is what Load and ForUpstream found in Auth.File. It is no key
	// of the configuration.
	Principals []Principal

	// Store is where floors, leases and keyed writes are kept.
	Store Store `yaml:"store"`

	// Leases bounds what a claim may ask for.
	Leases Leases `yaml:"leases"`

	// Headers names the request headers that carry the fence.
	Headers Headers `yaml:"headers"`

	// Limits bounds what the proxy takes on at a time.
	Limits Limits `yaml:"limits"`

	// Drain is how long a stopping proxy waits for the attempts in flight;
	// those left over are recorded as unknown. 0 waits for none.
	// Default 30s.
	Drain time.Duration `yaml:"drain"`

	// Log is what is logged and how.
	Log Log `yaml:"log"`

	// Telemetry is what is traced.
	Telemetry Telemetry `yaml:"telemetry"`

	// Defaults holds any route option but name, hosts, path and upstream. It
	// lies under each route, key by key: a route's own value wins, also
	// inside blocks such as takeover. A list is replaced as a whole.
	Defaults RouteOptions `yaml:"defaults"`

	// Routes says which requests go where. At least one; a request that no
	// route matches is answered no-route, never passed through.
	Routes []Route `yaml:"routes"`

	// origin remembers where each key was set, for the faults of Validate.
	origin origin
}

// ServerTLS is TLS on a listener of ours.
type ServerTLS struct {
	// CertFile is the certificate chain, PEM. With KeyFile it turns TLS on.
	// Default empty: plain HTTP.
	CertFile string `yaml:"cert_file"`

	// KeyFile is the private key of CertFile, PEM. Default empty.
	KeyFile string `yaml:"key_file"`

	// ClientCAFile holds the authorities, PEM, that client certificates are
	// checked against. Default empty: no client certificate is asked for.
	ClientCAFile string `yaml:"client_ca_file"`
}

// ClientTLS is TLS towards a server of somebody else.
type ClientTLS struct {
	// CAFile holds the authorities to trust, PEM. Default empty: the
	// system's.
	CAFile string `yaml:"ca_file"`

	// CertFile is the client certificate to present, PEM; needs KeyFile.
	// Default empty: none.
	CertFile string `yaml:"cert_file"`

	// KeyFile is the private key of CertFile, PEM. Default empty.
	KeyFile string `yaml:"key_file"`

	// ServerName is the name that the server's certificate must carry.
	// Default empty: the host of the address.
	ServerName string `yaml:"server_name"`
}

// Control is the control listener.
type Control struct {
	// Listen is its address, host:port. Anything but a loopback address
	// needs Auth.File. Default 127.0.0.1:8081.
	Listen string `yaml:"listen"`

	// TLS is how it speaks TLS. Default: plain HTTP.
	TLS ServerTLS `yaml:"tls"`
}

// Auth is who may do what.
type Auth struct {
	// File lists the principals, see Principal. Default empty: whoever reaches
	// the control listener, which then has to be on loopback, may do everything.
	File string `yaml:"file"`
}

// The values of Store.Engine.
const (
	EngineBadger   = "badger"
	EnginePostgres = "postgres"
	EngineEtcd     = "etcd"
)

// Store chooses the durable store.
type Store struct {
	// Engine is badger (embedded, one process), postgres or etcd (several
	// replicas). Default badger.
	Engine string `yaml:"engine" enum:"badger,postgres,etcd"`

	// Badger is read when Engine is badger.
	Badger Badger `yaml:"badger"`

	// Postgres is read when Engine is postgres.
	Postgres Postgres `yaml:"postgres"`

	// Etcd is read when Engine is etcd.
	Etcd Etcd `yaml:"etcd"`
}

// Badger is the embedded store.
type Badger struct {
	// Dir is its directory, created when missing. One process at a time uses
	// it. It must lie on a disk that survives restarts: without it the floors
	// are gone. Default ./fenceproxy-data.
	Dir string `yaml:"dir"`
}

// Postgres is a PostgreSQL database shared by several replicas.
type Postgres struct {
	// DSN is the connection string, as a URL or as key=value pairs. A secret:
	// better set from the environment than in a file. Default empty.
	DSN string `yaml:"dsn" secret:"dsn"`
}

// Etcd is an etcd cluster shared by several replicas.
type Etcd struct {
	// Endpoints are the URLs of its members. Default empty.
	Endpoints []string `yaml:"endpoints" secret:"userinfo"`

	// Prefix begins every key that is written. Default /fenceproxy/.
	Prefix string `yaml:"prefix"`

	// TLS is how its members are spoken to. Default: the system's
	// authorities, no client certificate.
	TLS ClientTLS `yaml:"tls"`
}

// Leases bounds the leases of the lease API.
type Leases struct {
	// MinTTL is the shortest time to live that a claim may ask for.
	// Default 1s.
	MinTTL time.Duration `yaml:"min_ttl"`

	// MaxTTL is the longest. Default 24h.
	MaxTTL time.Duration `yaml:"max_ttl"`

	// RestartGrace protects a lease that ran out while the proxy was down:
	// others get the job only this long after the start, so that its holder
	// can renew first. Default 5s.
	RestartGrace time.Duration `yaml:"restart_grace"`
}

// Headers names the request headers of a fenced write. The four names differ,
// and contain no underscore and no dot: servers take those for a dash.
type Headers struct {
	// JobID carries the job. Default Fence-Job-Id.
	JobID string `yaml:"job_id"`

	// Generation carries the generation. Default Fence-Generation.
	Generation string `yaml:"generation"`

	// Lease carries the lease id of the claim. Default Fence-Lease.
	Lease string `yaml:"lease"`

	// Key carries the idempotency key. Default Idempotency-Key.
	Key string `yaml:"key"`
}

// Limits bounds the load; beyond them a request is answered overloaded, or
// refused by the listener for its headers.
type Limits struct {
	// MaxInFlight is how many attempts may be in flight at a time.
	// Default 10000.
	MaxInFlight int `yaml:"max_in_flight"`

	// MaxInFlightPerJob is how many of them may belong to one job.
	// Default 256.
	MaxInFlightPerJob int `yaml:"max_in_flight_per_job"`

	// MaxHeader is the largest request head, in bytes: request line and all
	// headers together. From 1KiB to 16MiB. Default 64KiB.
	MaxHeader Size `yaml:"max_header"`
}

// Log is the log on standard error.
type Log struct {
	// Level is the least severe level that is logged: debug, info, warn or
	// error. Default info.
	Level string `yaml:"level" enum:"debug,info,warn,error"`

	// Format is json (one object a line) or text. Default json.
	Format string `yaml:"format" enum:"json,text"`
}

// Telemetry is tracing. Metrics are always served on the control listener.
type Telemetry struct {
	// Traces is auto (on when an OTEL_* exporter or endpoint variable is set
	// and OTEL_SDK_DISABLED is not) or none. Default auto.
	Traces string `yaml:"traces" enum:"auto,none"`
}
