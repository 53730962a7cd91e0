package config

import (
	"reflect"
	"strings"
)

// fixed lists the keys and blocks that a running proxy keeps until it is
// restarted: what it has opened, and what every request of every caller
// depends on. A caller that still uses the old name of a header would not be
// refused on a route where fencing is optional: its writes would pass unfenced.
func fixed() []string {
	return []string{
		"listen",
		"control.listen",
		"store",
		"headers",
		"limits.max_header",
		"log.format",
		"telemetry",
	}
}

// CheckReload checks that a proxy that runs with running can go over to c
// without a restart. It returns Faults, or nil.
func (c *Config) CheckReload(running *Config) error {
	was := map[string]reflect.Value{}
	walk(reflect.ValueOf(running).Elem(), "", func(path string, _ field, v reflect.Value) { was[path] = v })
	var faults Faults
	walk(reflect.ValueOf(c).Elem(), "", func(path string, f field, v reflect.Value) {
		if isFixed(path) && !reflect.DeepEqual(v.Interface(), was[path].Interface()) {
			faults = append(faults, c.FaultOf(path, "is "+shown(was[path], f)+" in the running proxy, and a change needs a restart"))
		}
	})
	for path, certs := range map[string][2]string{
		"tls.cert_file":         {running.TLS.CertFile, c.TLS.CertFile},
		"control.tls.cert_file": {running.Control.TLS.CertFile, c.Control.TLS.CertFile},
	} {
		if (certs[0] == "") != (certs[1] == "") {
			faults = append(faults, c.FaultOf(path, "turns TLS on or off, which needs a restart"))
		}
	}
	return faults.ErrorOrNil()
}

func isFixed(path string) bool {
	for _, listed := range fixed() {
		if path == listed || strings.HasPrefix(path, listed+".") {
			return true
		}
	}
	return false
}

// shown is a value as a fault may show it.
func shown(v reflect.Value, f field) string {
	if v.Kind() != reflect.Slice {
		return renderScalar(v, f.secret)
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = renderScalar(v.Index(i), f.secret)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
