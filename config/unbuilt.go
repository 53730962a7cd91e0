package config

import (
	"reflect"
	"regexp"
	"strings"
)

// unbuilt lists the keys and blocks that this version reads but cannot act on.
// Any value but the default is a fault, so that nobody relies on a feature that
// is not there. Building one deletes its line.
func unbuilt() []string {
	return []string{
		"store.engine",
		"store.postgres",
		"store.etcd",
	}
}

// isUnbuilt says whether key, as generalKey returns it, is listed.
func isUnbuilt(key string) bool {
	for _, listed := range unbuilt() {
		if key == listed || strings.HasPrefix(key, listed+".") {
			return true
		}
	}
	return false
}

// generalKey is the path of a route's option without the number of the route;
// the same option under defaults has the same.
func generalKey(path string) string {
	if option, ok := strings.CutPrefix(path, "defaults."); ok {
		return "routes[]." + option
	}
	return regexp.MustCompile(`^routes\[\d+\]`).ReplaceAllString(path, "routes[]")
}

// checkUnbuilt refuses what this version does not support.
func (c *checker) checkUnbuilt() {
	defaults := map[string]any{}
	untouched := Default()
	untouched.Routes = []Route{newRoute(untouched.Defaults)}
	walk(reflect.ValueOf(untouched), "", func(path string, _ field, v reflect.Value) {
		defaults[generalKey(path)] = v.Interface()
	})
	walk(reflect.ValueOf(c.config).Elem(), "", func(path string, _ field, v reflect.Value) {
		key := generalKey(path)
		if !isUnbuilt(key) || (v.Kind() == reflect.Slice && v.Len() == 0) {
			return
		}
		if !reflect.DeepEqual(v.Interface(), defaults[key]) {
			c.add(path, "not supported by this version yet")
		}
	})
}
