package config

import (
	"slices"
	"time"
)

// Default returns the configuration in which nothing was set. It has no route,
// so it does not validate as it stands.
func Default() Config {
	return Config{
		Listen:  "127.0.0.1:8080",
		Control: Control{Listen: "127.0.0.1:8081"},
		Store: Store{
			Engine: EngineBadger,
			Badger: Badger{Dir: "./fenceproxy-data"},
			Etcd:   Etcd{Prefix: "/fenceproxy/"},
		},
		Leases:    Leases{MinTTL: time.Second, MaxTTL: 24 * time.Hour, RestartGrace: 5 * time.Second},
		Headers:   Headers{JobID: "Fence-Job-Id", Generation: "Fence-Generation", Lease: "Fence-Lease", Key: "Idempotency-Key"},
		Limits:    Limits{MaxInFlight: 10000, MaxInFlightPerJob: 256, MaxHeader: 64 * KiB},
		Drain:     30 * time.Second,
		Log:       Log{Level: "info", Format: "json"},
		Telemetry: Telemetry{Traces: "auto"},
		Defaults: RouteOptions{
			UpstreamProtocol: ProtocolHTTP1,
			Fencing:          FencingRequired,
			Enforcement:      EnforcementEnforce,
			Generations:      GenerationsAuto,
			Timeout:          60 * time.Second,
			IdleTimeout:      60 * time.Second,
			Takeover:         Takeover{Wait: 10 * time.Second, Sent: SentWait},
			Idempotency: Idempotency{
				Key:         KeyOptional,
				OnDuplicate: DuplicateReplay,
				OnUnknown:   UnknownRefuse,
				Retention:   24 * time.Hour,
				MaxReply:    64 * KiB,
				StoreReply:  true,
			},
			Body: Body{Buffer: MiB},
		},
	}
}

// newRoute is a route in which nothing was set but what lies under it.
func newRoute(under RouteOptions) Route {
	under.Methods = slices.Clone(under.Methods)
	under.Outcomes.Applied = slices.Clone(under.Outcomes.Applied)
	under.Outcomes.Declined = slices.Clone(under.Outcomes.Declined)
	under.Outcomes.Unknown = slices.Clone(under.Outcomes.Unknown)
	return Route{Path: "/", RouteOptions: under}
}
